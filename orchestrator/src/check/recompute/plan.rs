//! Whether a server is fit to recompute the rows of a source, and which of them it recomputes.

use std::collections::BTreeMap;
use std::path::Path;

use rolltap_rollout::check::recomputation::{Comparable, LeftOut, Policy, Reason};
use rolltap_rollout::row::RolloutRow;
use rolltap_rollout::served_models::ServedModel;

use super::report::listed;
use super::{RecomputeSettings, rows};
use crate::source::SourceError;

/// The policy versions to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyChoice {
    /// The only version of the rows, which must be that of the server as far as the server names it.
    Same,
    /// This version, by its label, which must be that of the server as far as the server names it.
    Only(String),
    /// All versions, with any weights of the server.
    Any,
}

/// Why a server may not recompute the rows.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No token can be compared.
    #[error("no logprob can be recomputed{}", listed(.0))]
    Nothing(LeftOut),
    /// The server does not serve the model.
    #[error(
        "{url} does not serve model {model:?} of the rows but {served}: give --recompute-model if one of these is the \
         same model"
    )]
    ModelOfRows {
        /// The server.
        url: String,
        /// The model.
        model: String,
        /// The served models.
        served: String,
    },
    /// The server does not serve the chosen model.
    #[error("{url} does not serve model {model:?} of --recompute-model but {served}")]
    ChosenModel {
        /// The server.
        url: String,
        /// The model.
        model: String,
        /// The served models.
        served: String,
    },
    /// The rows are of several policy versions, and a server has one.
    #[error(
        "the rows are of several policy versions: {versions}; choose that of the server's weights with \
         --recompute-version LABEL, or compare all of them with --recompute-any-version"
    )]
    SeveralVersions {
        /// The versions with their numbers of tokens.
        versions: String,
    },
    /// No comparable token is of the chosen policy version.
    #[error("no comparable token is of policy version {chosen:?}; the versions are {versions}")]
    UnknownVersion {
        /// The chosen version.
        chosen: String,
        /// The versions with their numbers of tokens.
        versions: String,
    },
    /// The server names its weights otherwise.
    #[error(
        "the rows are of policy version {rows:?}, and {url} names its weights {server:?} (/weight_info): load the weights \
         of {rows:?} there, or compare in spite of it with --recompute-any-version"
    )]
    OtherWeights {
        /// The server.
        url: String,
        /// The version of the rows.
        rows: String,
        /// The name of the server's weights.
        server: String,
    },
}

/// A server's answers about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerFacts {
    pub(super) url: String,
    pub(super) models: Vec<ServedModel>,
    /// The name of its weights, from `/weight_info`. `None` without `VLLM_SERVER_DEV_MODE=1`.
    pub(super) weights: Option<String>,
}

/// Rows and tokens of a policy version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Extent {
    rows: u64,
    tokens: u64,
}

/// The comparable tokens of a source.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Rows with comparable tokens.
    rows: u64,
    models: BTreeMap<String, u64>,
    policies: BTreeMap<Policy, Extent>,
    left_out: LeftOut,
}

impl Survey {
    pub(super) fn of(path: &Path) -> Result<Self, SourceError> {
        let mut survey = Self::default();
        rows::each_row(path, |row| {
            survey.add(&row);
            true
        })?;
        Ok(survey)
    }

    pub(super) fn add(&mut self, row: &RolloutRow) {
        let row = Comparable::of(row, &mut self.left_out);
        let mut tokens = BTreeMap::<_, u64>::new();
        for token in &row.tokens {
            *tokens.entry(&token.policy).or_default() += 1;
        }
        for (policy, tokens) in &tokens {
            let extent = self.policies.entry((*policy).clone()).or_default();
            extent.rows += 1;
            extent.tokens += tokens;
        }
        if !tokens.is_empty() {
            self.rows += 1;
            *self.models.entry(row.model.clone()).or_default() += 1;
        }
    }

    /// Decides what the server recomputes.
    ///
    /// # Errors
    /// Returns the reason why the server may not.
    pub(super) fn plan(mut self, server: ServerFacts, settings: &RecomputeSettings) -> Result<Plan, Refusal> {
        if self.rows == 0 {
            return Err(Refusal::Nothing(self.left_out));
        }
        self.check_models(&server, settings.model.as_deref())?;
        let policy = self.choose_policy(&settings.policy)?;
        if let (Some(rows), Some(weights)) = (policy.as_ref().and_then(Policy::label), &server.weights)
            && rows != *weights
        {
            return Err(Refusal::OtherWeights { url: server.url, rows, server: weights.clone() });
        }
        let eligible = match &policy {
            Some(policy) => self.policies.remove(policy).map_or(0, |extent| extent.rows),
            None => self.rows,
        };
        let others: u64 = self.policies.values().map(|extent| extent.tokens).sum();
        if policy.is_some() && others > 0 {
            self.left_out.insert(Reason::OtherPolicy, others);
        }
        let rows = settings.rows.map_or(eligible, |rows| rows.get().min(eligible));
        Ok(Plan { server, model: settings.model.clone(), policy, eligible, rows, left_out: self.left_out })
    }

    fn check_models(&self, server: &ServerFacts, chosen: Option<&str>) -> Result<(), Refusal> {
        let is_served = |model: &str| server.models.iter().any(|served| served.id == model);
        let named = || {
            let url = server.url.clone();
            (url, server.models.iter().map(|model| format!("{:?}", model.id)).collect::<Vec<_>>().join(", "))
        };
        if let Some(model) = chosen {
            if is_served(model) {
                return Ok(());
            }
            let (url, served) = named();
            return Err(Refusal::ChosenModel { url, model: model.to_owned(), served });
        }
        match self.models.keys().find(|model| !is_served(model)) {
            None => Ok(()),
            Some(model) => {
                let (url, served) = named();
                Err(Refusal::ModelOfRows { url, model: model.clone(), served })
            }
        }
    }

    /// Returns the only policy version to compare, or `None` for all.
    fn choose_policy(&self, choice: &PolicyChoice) -> Result<Option<Policy>, Refusal> {
        let versions = || {
            let each =
                self.policies.iter().map(|(policy, extent)| format!("{policy}: {} tokens", extent.tokens));
            each.collect::<Vec<_>>().join(", ")
        };
        match choice {
            PolicyChoice::Any => Ok(None),
            // A label has priority over an ordinal, and ordinals come first in the order.
            PolicyChoice::Only(chosen) => {
                let policy = self.policies.keys().rfind(|policy| policy.is_called(chosen)).cloned();
                let unknown = || Refusal::UnknownVersion { chosen: chosen.clone(), versions: versions() };
                policy.ok_or_else(unknown).map(Some)
            }
            PolicyChoice::Same if self.policies.len() > 1 => {
                Err(Refusal::SeveralVersions { versions: versions() })
            }
            PolicyChoice::Same => Ok(self.policies.keys().next().cloned()),
        }
    }
}

/// What a server recomputes.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) server: ServerFacts,
    /// The model for all rows. `None` for the model of each row.
    model: Option<String>,
    /// The only compared version. `None` for all.
    policy: Option<Policy>,
    /// The rows with tokens to compare.
    pub(super) eligible: u64,
    /// The number of those that are sent.
    pub(super) rows: u64,
    /// The tokens of the source that are not compared.
    pub(super) left_out: LeftOut,
}

impl Plan {
    /// Returns the tokens to compare of a row, or `None` if it has none.
    pub(super) fn comparable(&self, row: &RolloutRow) -> Option<Comparable> {
        // The survey has counted the others.
        let mut counted = LeftOut::new();
        let mut row = Comparable::of(row, &mut counted);
        if let Some(policy) = &self.policy {
            row.retain_policy(policy, &mut counted);
        }
        (!row.tokens.is_empty()).then_some(row)
    }

    /// Returns whether the row with this index among the eligible rows is sent. The sent rows are spread evenly.
    pub(super) fn takes(&self, index: u64) -> bool {
        let taken_before =
            |index: u64| u128::from(index) * u128::from(self.rows) / u128::from(self.eligible.max(1));
        taken_before(index + 1) > taken_before(index)
    }

    /// Returns the served model that recomputes the row.
    pub(super) fn model_of<'a>(&'a self, row: &'a Comparable) -> &'a str {
        self.model.as_deref().unwrap_or(&row.model)
    }

    /// Returns the largest number of tokens that a prompt for the row may have. vLLM requires space for one sampled
    /// token. `None` if the server does not report its context length.
    pub(super) fn longest_prompt(&self, row: &Comparable) -> Option<usize> {
        let find = |name: &str| self.server.models.iter().find(|model| model.id == name);
        let model = find(self.model_of(row))?;
        // The entry of a LoRA adapter does not have the length of its model.
        let length = model.max_model_len.or_else(|| find(model.parent.as_deref()?)?.max_model_len)?;
        usize::try_from(length.saturating_sub(1)).ok()
    }
}
