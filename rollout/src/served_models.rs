//! The list of models that an OpenAI-compatible server serves, the answer of `GET /v1/models`.
//!
//! The proxy, the terminal agent and the orchestrator read this answer, and this is the lowest crate that all three
//! depend on. A parser of foreign bytes does no I/O, so it fits here: each reader sends its own request.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The models in the answer of `GET /v1/models`, in the server's order. LoRA adapters are models of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ServedModels {
    /// The entries of the list.
    #[serde(rename = "data")]
    pub models: Vec<ServedModel>,
}

/// A model that a server serves. Only the name is part of OpenAI's format; vLLM adds the rest. A field of another type
/// counts as absent, because another server may use its name for something else.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ServedModel {
    /// The name that requests use.
    pub id: String,
    /// The directory or the hub's name of the model that vLLM loaded.
    #[serde(default, deserialize_with = "of_expected_type")]
    pub root: Option<String>,
    /// The model that this LoRA adapter belongs to. `None` for a model that is no adapter.
    #[serde(default, deserialize_with = "of_expected_type")]
    pub parent: Option<String>,
    /// The maximum number of tokens in prompt and answer together.
    #[serde(default, deserialize_with = "of_expected_type")]
    pub max_model_len: Option<u64>,
}

impl ServedModels {
    /// Parses the body of the answer.
    ///
    /// # Errors
    /// Fails if the body is not JSON with a list `data` whose entries all have an `id`.
    pub fn parse(body: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(body)
    }

    /// Returns the names of all models, and drops the rest.
    pub fn into_ids(self) -> Vec<String> {
        self.models.into_iter().map(|model| model.id).collect()
    }
}

fn of_expected_type<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(T::deserialize(Value::deserialize(deserializer)?).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn model(id: &str) -> ServedModel {
        ServedModel { id: id.to_owned(), root: None, parent: None, max_model_len: None }
    }

    #[test]
    fn the_fields_of_vllm_are_read_and_others_are_ignored() {
        let list = br#"{"object": "list", "data": [
            {"id": "base", "root": "/models/base", "parent": null, "max_model_len": 4096, "permission": []},
            {"id": "adapter", "root": "/loras/a", "parent": "base"}]}"#;
        let base =
            ServedModel { root: Some("/models/base".to_owned()), max_model_len: Some(4096), ..model("base") };
        let adapter = ServedModel {
            root: Some("/loras/a".to_owned()),
            parent: Some("base".to_owned()),
            ..model("adapter")
        };
        let served = ServedModels::parse(list).unwrap();
        assert_eq!(served.models, [base, adapter]);
        assert_eq!(served.into_ids(), ["base", "adapter"]);
    }

    #[test]
    fn a_field_of_another_type_is_absent_and_an_entry_without_a_name_is_an_error() {
        let odd = br#"{"data": [{"id": "m", "root": 1, "parent": {}, "max_model_len": "4096"}, {"id": "n", "max_model_len": -1}]}"#;
        assert_eq!(ServedModels::parse(odd).unwrap().models, [model("m"), model("n")]);
        for wrong in
            ["", "<html>", "[]", "{}", r#"{"data": {}}"#, r#"{"data": [{}]}"#, r#"{"data": [{"id": 1}]}"#]
        {
            assert!(ServedModels::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(body: Vec<u8>) {
            let _read = ServedModels::parse(&body);
        }

        #[test]
        fn no_list_panics(entry in "[{}\\[\\]\",:a-z0-9.e-]{0,40}") {
            let _read = ServedModels::parse(format!(r#"{{"data": [{{"id": "m", "root": {entry}}}]}}"#).as_bytes());
        }
    }

    #[test]
    fn fuzz_served_models() {
        rolltap_testing::fuzz!("served_models", |body| drop(
            ServedModels::parse(body).map(ServedModels::into_ids)
        ));
    }
}
