//! The query parameters by which a reader asks for prepared rows.

use rolltap_rollout::export::choices::Named;
use rolltap_rollout::export::pipeline::prepare::{Extent, PrepareOptions};
use rolltap_rollout::export::pipeline::rules::OnFork;
use rolltap_rollout::rollout::InvalidRewardRule;

/// A parameter that cannot be followed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidChoice {
    #[error("{parameter} is {value:?}: give one of {accepted}")]
    Unknown { parameter: &'static str, value: String, accepted: String },
    #[error("{0} is a choice of a preparation: add prepare=train")]
    WithoutPrepare(&'static str),
    #[error("reward: {0}")]
    Reward(InvalidRewardRule),
    #[error(
        "messages and prepare exclude each other, because prepared rows have no texts: remove one of them"
    )]
    WithMessages,
}

/// The parameters as a query has them. Each value is checked here, so that an error can list the accepted values.
#[derive(Debug, Default)]
pub(super) struct AskedPreparation {
    pub(super) prepare: Option<String>,
    pub(super) on_fork: Option<String>,
    pub(super) failed: Option<String>,
    pub(super) train_constrained: Option<String>,
    pub(super) reward: Option<String>,
    /// Whether the query also asks for messages.
    pub(super) messages: bool,
}

impl AskedPreparation {
    /// `None` if the rows are to stay as they are.
    ///
    /// # Errors
    /// A value is unknown, a choice is made without `prepare`, or the query asks for messages and `prepare`.
    pub(super) fn options(&self) -> Result<Option<PrepareOptions>, InvalidChoice> {
        let Some(extent) = &self.prepare else {
            let choices = [
                ("on_fork", &self.on_fork),
                ("failed", &self.failed),
                ("train_constrained", &self.train_constrained),
                ("reward", &self.reward),
            ];
            // Ignored, it would look as if the rows followed the choice.
            return match choices.into_iter().find(|(_, value)| value.is_some()) {
                Some((name, _)) => Err(InvalidChoice::WithoutPrepare(name)),
                None => Ok(None),
            };
        };
        if self.messages {
            return Err(InvalidChoice::WithMessages);
        }
        let mut options = PrepareOptions::of(chosen("prepare", extent, Extent::ALL)?);
        if let Some(value) = &self.on_fork {
            options.on_fork = chosen("on_fork", value, OnFork::ALL)?;
        }
        if let Some(value) = &self.failed {
            options.failed = chosen("failed", value, PrepareOptions::FAILED)?;
        }
        if let Some(value) = &self.train_constrained {
            let unknown = |_| unknown("train_constrained", value, "true, false".to_owned());
            options.train_constrained = value.parse().map_err(unknown)?;
        }
        if let Some(value) = &self.reward {
            options.reward = Some(value.parse().map_err(InvalidChoice::Reward)?);
        }
        Ok(Some(options))
    }
}

fn chosen<T: Named>(parameter: &'static str, value: &str, accepted: &[T]) -> Result<T, InvalidChoice> {
    let found = accepted.iter().copied().find(|choice| choice.name() == value);
    found.ok_or_else(|| {
        let names: Vec<_> = accepted.iter().map(|choice| choice.name()).collect();
        unknown(parameter, value, names.join(", "))
    })
}

fn unknown(parameter: &'static str, value: &str, accepted: String) -> InvalidChoice {
    InvalidChoice::Unknown { parameter, value: value.to_owned(), accepted }
}

#[cfg(test)]
mod tests {
    use rolltap_rollout::export::pipeline::rules::Failed;

    use super::*;

    fn asked(query: &[(&str, &str)]) -> Result<Option<PrepareOptions>, String> {
        let value = |name| query.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let asked = AskedPreparation {
            prepare: value("prepare"),
            on_fork: value("on_fork"),
            failed: value("failed"),
            train_constrained: value("train_constrained"),
            reward: value("reward"),
            messages: value("messages").is_some(),
        };
        asked.options().map_err(|error| error.to_string())
    }

    #[test]
    fn the_parameters_become_options() {
        assert_eq!(asked(&[]), Ok(None));
        assert_eq!(asked(&[("prepare", "mask")]), Ok(Some(PrepareOptions::of(Extent::Mask))));
        let all = [
            ("prepare", "train"),
            ("on_fork", "longest"),
            ("failed", "zero"),
            ("train_constrained", "true"),
            ("reward", "speed=0.5,style=0.5"),
        ];
        let expected = PrepareOptions {
            extent: Extent::Train,
            on_fork: OnFork::Longest,
            failed: Failed::Zero,
            train_constrained: true,
            reward: Some("speed=0.5,style=0.5".parse().unwrap()),
        };
        assert_eq!(asked(&all), Ok(Some(expected)));
    }

    #[test]
    fn a_bad_value_names_those_that_are_accepted() {
        let error = |query: &[(&str, &str)]| asked(query).unwrap_err();
        let with = |name, value| error(&[("prepare", "train"), (name, value)]);
        assert_eq!(error(&[("prepare", "yes")]), r#"prepare is "yes": give one of mask, train"#);
        assert_eq!(with("on_fork", "both"), r#"on_fork is "both": give one of longest, all, error"#);
        assert_eq!(with("failed", "drop"), r#"failed is "drop": give one of mask, zero"#);
        assert_eq!(with("train_constrained", "1"), r#"train_constrained is "1": give one of true, false"#);
        let expected = "expected the name of a reward, mean, sum, or NAME=WEIGHT,NAME=WEIGHT…";
        assert_eq!(with("reward", "a=1,b"), format!("reward: {expected}; \"b\" has no weight"));
        assert_eq!(error(&[("on_fork", "all")]), "on_fork is a choice of a preparation: add prepare=train");
        let both = error(&[("prepare", "train"), ("messages", "true")]);
        assert!(both.starts_with("messages and prepare exclude each other"), "{both}");
    }
}
