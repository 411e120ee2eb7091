//! A prompt as token ids in a chat request.
//!
//! vLLM takes it in a field of the request where it has one ([`IdsPlace`]), else in `kv_transfer_params.prompt_token_ids`, made for servers that prefill for others: it then renders and
//! tokenises nothing, and parsers, streaming and sampling stay as they are. The messages stay in the request. A server that
//! does not know the key renders them, and its answer tells (`prompt_token_ids`); leaving them out would save nothing that
//! can be measured, and some tool parsers count the calls in them to name the next one (Kimi K2).

use rolltap_rollout::token_list::TokenList;

use crate::upstream::IdsPlace;
use crate::wire::json_edit::{Object, Splices};

/// The request with that prompt. None where it is no JSON object.
pub(crate) fn given(request: &str, prompt: &TokenList, place: IdsPlace) -> Option<Vec<u8>> {
    let object = Object::scan(request).ok()?;
    let mut splices = Splices::of(request);
    let ids = serde_json::to_string(prompt).ok()?;
    match place {
        IdsPlace::TransferParams => {
            object.set("kv_transfer_params", &format!("{{\"prompt_token_ids\":{ids}}}"), &mut splices);
        }
        IdsPlace::Field => object.set("prompt_token_ids", &ids, &mut splices),
    }
    splices.edited()
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
            let prompt: TokenList = ids.iter().map(|&id| TokenId::try_from(id).unwrap()).collect();
            for (place, key, value) in [
                (IdsPlace::TransferParams, "kv_transfer_params", json!({"prompt_token_ids": ids})),
                (IdsPlace::Field, "prompt_token_ids", json!(ids)),
            ] {
                let request = given(r#"{"messages":[{"role":"user","content":"hi"}],"n":1}"#, &prompt, place).unwrap();
                let request: serde_json::Value = serde_json::from_slice(&request).unwrap();
                prop_assert_eq!(&request[key], &value);
                prop_assert_eq!(request.as_object().unwrap().len(), 3);
            }
        }
    }

    #[test]
    fn what_is_no_object_stays_as_it_is() {
        assert!(given("[]", &TokenList::new(), IdsPlace::Field).is_none());
    }
}
