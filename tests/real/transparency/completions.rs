//! Completion requests of every shape: text and token prompts, one and several.

use serde_json::{Value, json};

/// Returns request shapes by name that the tiny model accepts.
pub(super) fn shapes() -> Vec<(&'static str, Value)> {
    let long = "foo bar ".repeat(4000);
    vec![
        ("plain", json!({})),
        ("one text in a list", json!({"prompt": ["def main():"]})),
        ("several texts", json!({"prompt": ["def main():", "class A:", ""]})),
        ("token ids", json!({"prompt": [300, 301, 302, 5]})),
        ("token ids in a list", json!({"prompt": [[300, 301, 302, 5]]})),
        ("several token prompts", json!({"prompt": [[300, 301], [302], [5, 6, 7]]})),
        ("two answers", json!({"n": 2})),
        ("two answers to each of two", json!({"n": 2, "prompt": ["def main():", "class A:"]})),
        ("two answers to token prompts", json!({"n": 2, "prompt": [[300, 301], [302]]})),
        ("unicode", json!({"prompt": "日本語 🎉 \u{7f} é"})),
        ("echo", json!({"echo": true})),
        ("echo with logprobs", json!({"echo": true, "logprobs": 1})),
        ("echo of token ids", json!({"echo": true, "prompt": [300, 301, 302], "return_token_ids": true})),
        ("echo of several", json!({"echo": true, "prompt": ["def main():", "class A:"], "logprobs": 0})),
        ("echo alone", json!({"echo": true, "max_tokens": 0})),
        ("echo alone with logprobs", json!({"echo": true, "max_tokens": 0, "logprobs": 0})),
        ("no logprobs beside", json!({"logprobs": 0})),
        ("logprobs", json!({"logprobs": 3})),
        ("logprobs of several", json!({"logprobs": 2, "n": 2, "prompt": ["def main():", "class A:"]})),
        ("prompt logprobs", json!({"prompt_logprobs": 1})),
        ("ids asked for", json!({"return_token_ids": true})),
        ("both", json!({"logprobs": 0, "return_token_ids": true})),
        ("tokens as ids", json!({"logprobs": 0, "return_tokens_as_token_ids": true})),
        ("one token", json!({"max_tokens": 1})),
        ("max_tokens left out", json!({"max_tokens": null})),
        ("stop strings", json!({"stop": ["e", "o"]})),
        ("stop strings kept", json!({"stop": ["e"], "include_stop_str_in_output": true})),
        ("stop token", json!({"logit_bias": {"77": 100}, "stop_token_ids": [77]})),
        ("end of turn", json!({"logit_bias": {"4089": 100}})),
        ("ignore_eos", json!({"ignore_eos": true, "logit_bias": {"4089": 100}})),
        ("min_tokens", json!({"min_tokens": 5, "max_tokens": 9})),
        ("penalties", json!({"presence_penalty": 0.5, "frequency_penalty": 0.25, "repetition_penalty": 1.1})),
        ("split characters", json!({"structured_outputs": {"regex": "日本語🎉 é"}, "max_tokens": 40})),
        ("truncated prompt", json!({"truncate_prompt_tokens": 3})),
        ("unknown key", json!({"totally_unknown": {"x": [1.50, 1e3]}, "user": "me"})),
        ("suffix", json!({"suffix": "end"})),
        ("unknown model", json!({"model": "nobody"})),
        ("no prompt", json!({"prompt": null})),
        ("empty prompt", json!({"prompt": ""})),
        ("no prompts", json!({"prompt": []})),
        ("prompt of a wrong type", json!({"prompt": 5})),
        ("prompts of mixed types", json!({"prompt": ["a", [1]]})),
        ("token out of vocabulary", json!({"prompt": [1, 99_999_999]})),
        ("negative token", json!({"prompt": [1, -1]})),
        ("negative temperature", json!({"temperature": -1})),
        ("too many logprobs", json!({"logprobs": 50})),
        ("logprobs of a wrong type", json!({"logprobs": "all"})),
        ("context overflow", json!({"prompt": long})),
        ("max_tokens too large", json!({"max_tokens": 100_000})),
    ]
}

/// Returns the request whose fields a shape replaces.
pub(super) fn base() -> Value {
    json!({"model": "tiny", "prompt": "def main(): return", "max_tokens": 24, "temperature": 0})
}
