//! Reads a server's own description of its chat requests (`GET /openapi.json`).

use std::collections::HashMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// The place of the prompt ids in a chat request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IdsPlace {
    /// `kv_transfer_params.prompt_token_ids`: vLLM since 0.31. Its description lists no key of these parameters.
    #[default]
    TransferParams,
    /// `prompt_token_ids` of the request itself, which vLLM's pull request 55771 adds.
    Field,
}

#[derive(Deserialize)]
struct Description {
    components: Components,
}

#[derive(Deserialize)]
struct Components {
    schemas: Schemas,
}

#[derive(Deserialize)]
struct Schemas {
    #[serde(rename = "ChatCompletionRequest")]
    chat: Schema,
}

#[derive(Deserialize)]
struct Schema {
    properties: HashMap<String, IgnoredAny>,
}

impl IdsPlace {
    /// Finds the place in the description. An unreadable description counts as a description without the field.
    pub(super) fn in_description(body: &[u8]) -> Self {
        let description = serde_json::from_slice::<Description>(body);
        // Only the schema of chat requests counts. Other schemas may have a field of that name.
        let has_field = |described: Description| {
            described.components.schemas.chat.properties.contains_key("prompt_token_ids")
        };
        if description.is_ok_and(has_field) { Self::Field } else { Self::TransferParams }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_of_the_chat_request_is_found_and_no_other() {
        let place = |schema: &str, field: &str| {
            let body = json!({"openapi": "3.1.0", "paths": {"/v1/chat/completions": {}}, "components": {"schemas": {
                "Other": {"properties": {"prompt_token_ids": {}}}, schema: {"type": "object", "properties": {field: {"type": "array"}}}}}});
            IdsPlace::in_description(body.to_string().as_bytes())
        };
        assert_eq!(place("ChatCompletionRequest", "prompt_token_ids"), IdsPlace::Field);
        assert_eq!(place("ChatCompletionRequest", "kv_transfer_params"), IdsPlace::TransferParams);
        assert_eq!(place("ChatCompletionResponse", "prompt_token_ids"), IdsPlace::TransferParams);
    }

    proptest! {
        #[test]
        fn no_description_panics(body: Vec<u8>) {
            prop_assert_eq!(IdsPlace::in_description(&body), IdsPlace::TransferParams);
        }
    }
}
