//! Foreign texts: any template, configuration or conversation results in an answer or an error.

use proptest::prelude::*;
use serde_json::json;

use super::{fixture, fixture_dir};
use crate::render::files::TokenizerConfig;
use crate::render::template::Template;
use crate::render::{LocalRenderer, RenderSettings};

/// Generates pieces of templates, so that random input contains more than plain text.
fn template_text() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "{%",
        "%}",
        "{{",
        "}}",
        "{#",
        "#}",
        "-",
        "+",
        " ",
        "\n",
        "\r\n",
        "for m in messages",
        "endfor",
        "if ",
        "endif",
        "generation",
        "endgeneration",
        "set x = ",
        "messages",
        "m",
        ".content",
        "['role']",
        "|tojson",
        "(indent=2)",
        "|trim",
        ".split('",
        "')",
        "[0]",
        "[::-1]",
        "'%s'",
        " % ",
        "~",
        "raise_exception('no')",
        "strftime_now('%d %Q')",
        "x",
        "'",
        "\"",
        "macro f(a)",
        "endmacro",
        "f(m)",
        "namespace(a=1)",
        "is string",
        "is defined",
        "none",
        "1.5",
        "é",
    ]);
    prop::collection::vec(pieces, 0..30).prop_map(|pieces| pieces.concat())
}

fn json_value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|value| json!(value)),
        any::<f64>().prop_map(|value| json!(value)),
        any::<i64>().prop_map(|value| json!(value)),
        "[a-z{}\"\\\\ ]{0,8}".prop_map(|value| json!(value)),
    ];
    let key = prop::sample::select(vec![
        "role",
        "content",
        "tool_calls",
        "function",
        "arguments",
        "name",
        "type",
        "text",
        "id",
        "reasoning",
        "x",
    ]);
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| json!(items)),
            prop::collection::btree_map(key.clone(), inner, 0..5).prop_map(|members| json!(members)),
        ]
    })
}

proptest! {
    #[test]
    fn no_template_panics(text in template_text()) {
        if let Ok(template) = Template::compile(&text) {
            let messages = vec![minijinja::Value::from_pairs([("role", "user"), ("content", "a b")])];
            let _ = template.render(minijinja::Value::from_pairs([("messages", messages)]));
        }
    }

    #[test]
    fn bytes_that_are_no_configuration_are_an_error_with_their_file(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("tokenizer_config.json"), &bytes).unwrap();
        if let Err(error) = TokenizerConfig::load(dir.path()) {
            prop_assert!(error.to_string().contains("tokenizer_config.json"));
        } else {
            prop_assert!(serde_json::from_slice::<serde_json::Map<_, serde_json::Value>>(&bytes).is_ok());
        }
    }

    #[test]
    fn a_message_of_any_shape_is_read_or_refused(role in "system|developer|assistant|tool|user", mut message in json_value()) {
        let renderer = fixture_once();
        if let Some(members) = message.as_object_mut() {
            members.insert("role".to_owned(), json!(role));
        }
        if let Ok(message) = renderer.message(&message) {
            let content = message.with_content("é").content();
            prop_assert_eq!(content.as_str(), Some("é"));
        }
    }

    #[test]
    fn texts_survive_their_ids(text in "(\\PC|<\\|im_end\\|>|\n){0,40}") {
        let renderer = fixture_once();
        let ids = renderer.encode(&text).unwrap();
        prop_assert_eq!(renderer.decode(&ids).unwrap(), text);
    }
}

/// Returns the renderer, loaded once for all cases.
fn fixture_once() -> &'static LocalRenderer {
    static FIXTURE: std::sync::LazyLock<LocalRenderer> = std::sync::LazyLock::new(fixture);
    &FIXTURE
}

#[test]
fn every_case_of_the_corpus_is_read() {
    let renderer = LocalRenderer::load(&fixture_dir(), &RenderSettings::default()).unwrap();
    for case in super::golden::corpus() {
        for message in case.request["messages"].as_array().unwrap() {
            assert!(renderer.message(message).is_ok(), "{}: {message}", case.name);
        }
    }
}

#[test]
fn fuzz_rendered_text() {
    rolltap_testing::fuzz!("rendered_text", |text| {
        let Ok(text) = std::str::from_utf8(text) else { return };
        let renderer = fixture_once();
        let ids = renderer.encode(text).unwrap();
        assert_eq!(renderer.decode(&ids).unwrap(), text);
    });
}

#[test]
fn fuzz_message() {
    rolltap_testing::fuzz!("message", |json| {
        let Ok(message) = serde_json::from_slice(json) else { return };
        if let Ok(message) = fixture_once().message(&message) {
            assert_eq!(message.with_content("é").content().as_str(), Some("é"));
        }
    });
}

#[test]
fn fuzz_template() {
    rolltap_testing::fuzz!("template", |text| {
        let Ok(text) = std::str::from_utf8(text) else { return };
        drop(Template::compile(text));
    });
}
