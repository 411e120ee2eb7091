//! Puts a prompt as token ids into a chat request.
//!
//! If vLLM's requests have a field for ids ([`IdsPlace`]), the ids go there. Otherwise they go into
//! `kv_transfer_params.prompt_token_ids`, which exists for servers that prefill for others. In both cases vLLM renders
//! and tokenises nothing, and parsers, streaming and sampling are unchanged.
//!
//! The messages stay in the request. A server that does not know the key renders them, and `prompt_token_ids` in its
//! answer shows that. A measurement showed that omitting the messages saves nothing. Some tool parsers count the calls
//! in the messages to name the next call (Kimi K2).

use rolltap_rollout::token_list::TokenList;

use crate::upstream::IdsPlace;
use crate::wire::json_edit::Object;

/// Returns the text of the request with this prompt.
pub(crate) fn given(request: &Object<'_>, prompt: &TokenList, place: IdsPlace) -> Option<Vec<u8>> {
    let mut splices = request.splices();
    let ids = serde_json::to_string(prompt).ok()?;
    match place {
        IdsPlace::TransferParams => {
            request.set("kv_transfer_params", &format!("{{\"prompt_token_ids\":{ids}}}"), &mut splices);
        }
        IdsPlace::Field => request.set("prompt_token_ids", &ids, &mut splices),
    }
    splices.edited().map(String::into_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rolltap_rollout::token::TokenId;
    use serde_json::json;

    use super::*;

    proptest! {
        #[test]
        fn the_prompt_is_added_and_nothing_else_changed(ids in prop::collection::vec(0..i32::MAX as u32, 0..40)) {
            let object = Object::scan(r#"{"messages":[{"role":"user","content":"hi"}],"n":1}"#).unwrap();
            let prompt: TokenList = ids.iter().map(|&id| TokenId::try_from(id).unwrap()).collect();
            for (place, key, value) in [
                (IdsPlace::TransferParams, "kv_transfer_params", json!({"prompt_token_ids": ids})),
                (IdsPlace::Field, "prompt_token_ids", json!(ids)),
            ] {
                let request = given(&object, &prompt, place).unwrap();
                let request: serde_json::Value = serde_json::from_slice(&request).unwrap();
                prop_assert_eq!(&request[key], &value);
                prop_assert_eq!(request.as_object().unwrap().len(), 3);
            }
        }
    }
}
