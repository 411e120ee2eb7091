//! The facts about the served model that its answers lack: the size of its vocabulary, and vLLM's sampling defaults.
//!
//! vLLM reports the model's directory (`root` in `/v1/models`). If that directory is on this machine, its files contain
//! the rest. vLLM takes sampling defaults from `generation_config.json`, unless `--generation-config` changes this.

use std::path::{Path, PathBuf};

use rolltap_rollout::served_models::ServedModels;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The known facts about a served model. Empty if nothing is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ModelCard {
    /// The names that requests may use, LoRA adapters included. Empty if the server does not list them.
    pub(crate) models: Vec<String>,
    /// The model's directory, if it is on this machine.
    pub(crate) dir: Option<PathBuf>,
    /// The longest context, in tokens.
    pub(crate) max_model_len: Option<u64>,
    /// Every token id is below this number.
    pub(crate) vocab_size: Option<u32>,
    /// The sampling of a request without parameters.
    pub(crate) defaults: SamplingDefaults,
}

/// The sampling of a request without parameters. A value is `None` if the server's files are unknown too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct SamplingDefaults {
    /// The divisor of the logits.
    pub temperature: Option<f64>,
    /// The probability mass of nucleus sampling.
    pub top_p: Option<f64>,
    /// The number of candidate tokens. 0 or −1 stands for all.
    pub top_k: Option<i64>,
}

#[derive(Deserialize)]
struct Config {
    vocab_size: Option<u32>,
    text_config: Option<TextConfig>,
}

/// The configuration of the language part of a multimodal model.
#[derive(Deserialize)]
struct TextConfig {
    vocab_size: Option<u32>,
}

impl ModelCard {
    /// Reads the answer of `GET /v1/models`, and the files that it points to. Returns `None` if the answer is
    /// malformed.
    pub(super) fn from_models_answer(body: &[u8]) -> Option<Self> {
        let served = ServedModels::parse(body).ok()?;
        // The root of an adapter is not the directory of the model.
        let root = served
            .models
            .iter()
            .filter(|model| model.parent.is_none())
            .find_map(|model| model.root.as_deref());
        let card = root.map(|root| Self::from_dir(Path::new(root))).unwrap_or_default();
        let max_model_len = served.models.iter().find_map(|model| model.max_model_len);
        Some(Self { max_model_len, models: served.into_ids(), ..card })
    }

    /// Applies the configured values. They win, because they know `--generation-config` and
    /// `--override-generation-config`.
    pub(super) fn with_defaults(mut self, configured: SamplingDefaults) -> Self {
        self.defaults = SamplingDefaults {
            temperature: configured.temperature.or(self.defaults.temperature),
            top_p: configured.top_p.or(self.defaults.top_p),
            top_k: configured.top_k.or(self.defaults.top_k),
        };
        self
    }

    fn from_dir(dir: &Path) -> Self {
        let Some(config) = read::<Config>(&dir.join("config.json")) else { return Self::default() };
        let language = config.text_config.and_then(|text| text.vocab_size);
        // vLLM itself uses these values for missing keys, or for a model without the file.
        let vllm = SamplingDefaults { temperature: Some(1.0), top_p: Some(1.0), top_k: Some(0) };
        let stated = read::<SamplingDefaults>(&dir.join("generation_config.json")).unwrap_or_default();
        let defaults = SamplingDefaults {
            temperature: stated.temperature.or(vllm.temperature),
            top_p: stated.top_p.or(vllm.top_p),
            top_k: stated.top_k.or(vllm.top_k),
        };
        let (models, dir) = (Vec::new(), Some(dir.to_owned()));
        Self { models, dir, max_model_len: None, vocab_size: config.vocab_size.or(language), defaults }
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_directory_tells_vocabulary_and_defaults() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.json"), r#"{"vocab_size": 4096}"#).unwrap();
        std::fs::write(
            dir.path().join("generation_config.json"),
            r#"{"temperature": 0.6, "do_sample": true}"#,
        )
        .unwrap();
        let body = serde_json::json!({"data": [{"id": "m", "root": dir.path()}]}).to_string();
        let card = ModelCard::from_models_answer(body.as_bytes()).unwrap();
        assert_eq!((card.vocab_size, &card.models[..]), (Some(4096), &["m".to_owned()][..]));
        assert_eq!(
            card.defaults,
            SamplingDefaults { temperature: Some(0.6), top_p: Some(1.0), top_k: Some(0) }
        );
    }

    #[test]
    fn a_model_elsewhere_is_unknown_and_not_guessed() {
        let body = r#"{"data": [{"id": "m", "root": "org/model-on-a-hub"}]}"#;
        let card = ModelCard { models: vec!["m".to_owned()], ..ModelCard::default() };
        assert_eq!(ModelCard::from_models_answer(body.as_bytes()), Some(card.clone()));
        assert_eq!(ModelCard::from_models_answer(b"<html>"), None);
        let configured = SamplingDefaults { temperature: Some(0.6), ..SamplingDefaults::default() };
        assert_eq!(card.with_defaults(configured).defaults, configured);
    }

    #[test]
    fn adapters_are_served_names_and_not_the_model() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.json"), r#"{"vocab_size": 7}"#).unwrap();
        let data = serde_json::json!({"data": [
            {"id": "adapter", "root": "/nowhere", "parent": "base"},
            {"id": "base", "root": dir.path(), "parent": null},
        ]});
        let card = ModelCard::from_models_answer(data.to_string().as_bytes()).unwrap();
        assert_eq!((card.vocab_size, card.models.len()), (Some(7), 2));
    }

    proptest::proptest! {
        #[test]
        fn no_answer_panics(body: Vec<u8>) {
            let _ = ModelCard::from_models_answer(&body);
        }
    }

    #[test]
    fn fuzz_model_card() {
        rolltap_testing::fuzz!("model_card", |body| drop(ModelCard::from_models_answer(body)));
    }
}
