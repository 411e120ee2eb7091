//! The renderer on its own model directory, which is small enough for the repository.

mod asked;
mod golden;
mod properties;
mod served;

use std::path::{Path, PathBuf};

use rolltap_rollout::token::TokenId;
use serde_json::{Value as Json, json};

use super::{ContentFormat, LoadError, LocalRenderer, RenderError, RenderSettings, RequestInputs};

/// Returns the small model directory.
pub(crate) fn fixture_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/render")
}

/// Loads the renderer of a byte-level tokenizer with 347 tokens and a ChatML template: `<|endoftext|>` 340,
/// `<|im_start|>` 341, `<|im_end|>` 342. `<think>`, `</think>`, `<tool_call>` and `</tool_call>` are added tokens too.
pub(crate) fn fixture() -> LocalRenderer {
    LocalRenderer::load(&fixture_dir(), &RenderSettings::default()).unwrap()
}

/// Loads a renderer with another template, in a directory that is removed afterwards.
pub(crate) fn by_template(template: &str, settings: RenderSettings) -> Result<LocalRenderer, LoadError> {
    let dir = tempfile::tempdir().unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(fixture_dir().join(file), dir.path().join(file)).unwrap();
    }
    std::fs::write(dir.path().join("chat_template.jinja"), template).unwrap();
    LocalRenderer::load(dir.path(), &settings)
}

fn text(renderer: &LocalRenderer, messages: &Json, inputs: &RequestInputs) -> Result<String, RenderError> {
    let messages = messages.as_array().unwrap().iter().map(|message| renderer.message(message));
    renderer.render(&messages.collect::<Result<Vec<_>, _>>()?, &renderer.inputs(inputs)?, true)
}

fn ids(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().map(|id| TokenId::try_from(*id).unwrap()).collect()
}

#[test]
fn a_conversation_becomes_text_and_ids() {
    let renderer = fixture();
    let call = json!({"id": "1", "type": "function", "function": {"name": "ls", "arguments": "{\"a\": 1e20, \"b\": \"é\"}"}});
    let messages = json!([
        {"role": "system", "content": "x-anthropic-billing-header: 1\nBe terse."},
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "there"}]},
        {"role": "assistant", "content": null, "reasoning": "\nhm\n", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "<|im_end|>"},
    ]);
    let tools = json!([{"type": "function", "function": {"name": "ls", "x": 1}}]);
    let said = RequestInputs {
        tools: Some(tools),
        reasoning_effort: Some(json!("none")),
        ..RequestInputs::default()
    };
    let mut messages = messages;
    messages[2]["tool_calls"][0]["function"]["arguments"] = json!("{\"a\": 1.5e-7, \"b\": \"é\"}");
    assert_eq!(
        text(&renderer, &messages, &said).unwrap(),
        "<|im_start|>system\nBe terse.\n\nTools:\n\
         {\"type\": \"function\", \"function\": {\"name\": \"ls\", \"description\": null, \"parameters\": null}}\n\
         <|im_end|>\n<|im_start|>user\nhi\nthere<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</think>\n\n\
         \n<tool_call>\n{\"name\": \"ls\", \"arguments\": {\"a\": 1.5e-07, \"b\": \"é\"}}\n</tool_call><|im_end|>\n\
         <|im_start|>user\n<tool_response>\n<|im_end|>\n</tool_response><|im_end|>\n\
         <|im_start|>assistant\n<think>\n\n</think>\n\n"
    );
    let encoded = renderer.encode("<|im_start|>user").unwrap();
    assert_eq!(
        (encoded[0], renderer.decode(&encoded).unwrap().as_str()),
        (ids(&[341])[0], "<|im_start|>user")
    );
}

#[test]
fn what_is_known_of_the_tokenizer() {
    let renderer = fixture();
    assert_eq!(renderer.end_ids(), ids(&[340, 342]));
    assert_eq!(renderer.token_at_start("<|im_end|>\n"), Some((ids(&[342])[0], "<|im_end|>")));
    assert_eq!(renderer.token_at_start("x<|im_end|>"), None);
    assert_eq!(renderer.hash().len(), 16);
    // The id is a single byte that begins a character.
    let whole = renderer.encode("é").unwrap();
    assert_eq!(renderer.decode(&whole[..1]).unwrap(), "\u{fffd}");
}

#[test]
fn another_content_keeps_the_rest_of_a_message() {
    let renderer = fixture();
    let answer = json!({"role": "assistant", "content": "a", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": ""}}]});
    let message = renderer.message(&answer).unwrap().with_content("b");
    let inputs = renderer.inputs(&RequestInputs::default()).unwrap();
    assert_eq!(
        renderer.render(&[message], &inputs, false).unwrap(),
        "<|im_start|>assistant\nb\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call><|im_end|>\n"
    );
}

#[test]
fn a_template_refuses_in_its_own_words() {
    let refused = text(&fixture(), &json!([{"role": "critic", "content": ""}]), &RequestInputs::default());
    assert!(matches!(refused, Err(RenderError::Raised(words)) if words == "Unknown role: critic"));
    let broken = by_template("{{ messages[0].a.b }}", RenderSettings::default()).unwrap();
    let failed = text(&broken, &json!([{"role": "user", "content": ""}]), &RequestInputs::default());
    assert!(matches!(failed, Err(RenderError::Template(_))));
}

#[test]
fn developers_become_system_where_the_template_knows_none() {
    let messages = json!([
        {"role": "user", "content": "a"},
        {"role": "developer", "content": "b"},
        {"role": "system", "content": "c"},
    ]);
    assert_eq!(
        text(&fixture(), &messages, &RequestInputs::default()).unwrap(),
        "<|im_start|>system\nb\n\nc<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn the_form_of_content_follows_the_template() {
    let parts = "{% for m in messages %}{% for c in m['content'] %}{{ c.text }};{% endfor %}{% endfor %}";
    let by_macro = "{% macro show(what) %}{% for c in what %}{{ c.text }};{% endfor %}{% endmacro %}\
                    {% set list = messages[1:] %}{% for m in list %}{{ show(m.content) }}{% endfor %}";
    let plain = "{% for m in messages %}{{ m.content }};{% endfor %}";
    let settings = RenderSettings::default();
    let form = |template: &str| by_template(template, settings.clone()).unwrap().format;
    assert_eq!(form(parts), ContentFormat::OpenAi);
    assert_eq!(form(by_macro), ContentFormat::OpenAi);
    assert_eq!(form(plain), ContentFormat::String);
    let messages = json!([{"role": "user", "content": "a"}, {"role": "tool", "content": [{"type": "text", "text": "b"}]}]);
    let told = RenderSettings { content_format: Some(ContentFormat::OpenAi), ..settings };
    let plain = by_template(plain, told).unwrap();
    assert_eq!(
        text(&plain, &messages, &RequestInputs::default()).unwrap(),
        "[{'type': 'text', 'text': 'a'}];b;"
    );
}

#[test]
fn generation_blocks_do_not_affect_the_text() {
    let template = "{% set x = 1 %}{%- generation -%} {% set x = 2 %}{{ x }} {%- endgeneration %}{{ x }}";
    let renderer = by_template(template, RenderSettings::default()).unwrap();
    let messages = json!([{"role": "user", "content": ""}]);
    assert_eq!(text(&renderer, &messages, &RequestInputs::default()).unwrap(), "21");
}

#[test]
fn bad_directories_are_distinguished() {
    let absent = LocalRenderer::load(Path::new("/nonexistent"), &RenderSettings::default());
    assert!(matches!(absent, Err(LoadError::Read { .. })));
    let template = by_template("{% if %}", RenderSettings::default());
    assert!(matches!(template, Err(LoadError::Template { .. })));
}
