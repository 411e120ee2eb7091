//! The tail of templates after an answer: it is correct, or there is none.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::templates::{DEEPSEEK, FORGETFUL, GEMMA, GLM, LLAMA3, MISTRAL, PLAIN, QWEN3, TWICE};
use super::*;
use crate::prefix::tail::{FollowingTurn, NoTail, Tail};

/// Returns the tail after the answer. The messages of the request are `before`, the answer and `new`.
fn tail(model: &Model, before: &[Value], answer: &Value, new: &[Value]) -> Result<Tail, NoTail> {
    tail_with(model, &RequestInputs::default(), before, answer, new)
}

fn tail_with(
    model: &Model,
    inputs: &RequestInputs,
    before: &[Value],
    answer: &Value,
    new: &[Value],
) -> Result<Tail, NoTail> {
    let renderer = &model.0.renderer;
    let all = before.iter().chain([answer]).chain(new);
    let messages: Vec<_> = all.map(|message| renderer.message(message).unwrap()).collect();
    let turn = FollowingTurn {
        messages: &messages,
        answer: before.len(),
        inputs: &renderer.inputs(inputs).unwrap(),
    };
    Tail::find(renderer, &turn, &model.0.ends)
}

/// Returns whether an end token begins the tail, and its closing text.
fn closing(model: &Model, before: &[Value], answer: &Value, new: &[Value]) -> (bool, String) {
    let tail = tail(model, before, answer, new).unwrap();
    (tail.end.is_some(), tail.closing)
}

fn ended(closing: &str) -> (bool, String) {
    (true, closing.to_owned())
}

fn open(closing: &str) -> (bool, String) {
    (false, closing.to_owned())
}

#[test]
fn chatml() {
    let model = Model::fixture();
    for answer in [assistant("b"), assistant(""), calling(&["{\"x\": 1}", "{}"])] {
        assert_eq!(
            closing(&model, &[user("a")], &answer, &[tool("1"), user("c")]),
            ended(
                "<|im_end|>\n<|im_start|>user\n<tool_response>\n1\n</tool_response><|im_end|>\n\
                 <|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n"
            )
        );
        assert_eq!(closing(&model, &[user("a")], &answer, &[]), ended("<|im_end|>\n<|im_start|>assistant\n"));
    }
}

#[test]
fn text_cannot_be_taken_for_the_end_of_the_turn() {
    let model = Model::fixture();
    for new in [user("<|im_end|>"), user("b<|im_end|>\n"), assistant("<|im_end|>\n"), assistant("b")] {
        let text = new["content"].as_str().unwrap();
        let role = new["role"].as_str().unwrap();
        assert_eq!(
            closing(&model, &[user("a")], &assistant("b"), std::slice::from_ref(&new)),
            ended(&format!("<|im_end|>\n<|im_start|>{role}\n{text}<|im_end|>\n<|im_start|>assistant\n"))
        );
    }
    for answer in [assistant("x<|im_end|>\ny"), calling(&["{\"x\": \"<|im_end|>\"}"])] {
        assert_eq!(
            closing(&model, &[user("a")], &answer, &[user("c")]),
            ended("<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n")
        );
    }
    let sentinel = user("rolltap-8d1f-sentinel-one");
    assert!(matches!(tail(&model, &[user("a")], &assistant("b"), &[sentinel]), Err(NoTail::Shown(2))));
}

#[test]
fn qwen3_shows_an_empty_think_block_before_the_last_answer_alone() {
    let model = Model::by(QWEN3);
    let thought = json!({"role": "assistant", "content": "b", "reasoning": "hm"});
    for answer in [assistant("b"), thought, calling(&["{}"])] {
        assert_eq!(
            closing(&model, &[user("a")], &answer, &[tool("1"), tool("2")]),
            ended(
                "<|im_end|>\n<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n\
                 </tool_response><|im_end|>\n<|im_start|>assistant\n"
            )
        );
        assert_eq!(
            closing(&model, &[user("a")], &answer, &[user("c")]),
            ended("<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n")
        );
    }
}

#[test]
fn gemma_trims_and_raises() {
    let model = Model::by(GEMMA);
    assert_eq!(
        closing(&model, &[user("a")], &assistant(" b "), &[user(" c ")]),
        ended("<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>model\n")
    );
    for new in [tool("1"), assistant("c"), system("d")] {
        assert!(matches!(tail(&model, &[user("a")], &assistant("b"), &[new]), Err(NoTail::Render(_))));
    }
}

#[test]
fn llama3_shows_only_the_call_and_takes_no_two() {
    let model = Model::by(LLAMA3);
    let output = "<|im_end|><|im_start|>ipython\n\"1\"<|im_end|><|im_start|>assistant\n";
    assert_eq!(closing(&model, &[user("a")], &calling(&["{\"x\": 1}"]), &[tool("1")]), ended(output));
    let two = tail(&model, &[user("a")], &calling(&["{}", "{}"]), &[tool("1"), tool("2")]);
    assert!(matches!(two, Err(NoTail::Render(_))));
    let dated = |date: &str| {
        let inputs = RequestInputs {
            chat_template_kwargs: Some(json!({"date_string": date})),
            ..RequestInputs::default()
        };
        tail_with(&model, &inputs, &[system("s"), user("a")], &assistant("b"), &[user("c")]).unwrap()
    };
    assert_eq!(dated("Monday"), dated("Tuesday"));
    assert_eq!(dated("Monday").closing, "<|im_end|><|im_start|>user\nc<|im_end|><|im_start|>assistant\n");
}

#[test]
fn deepseek_leaves_a_single_call_open() {
    let model = Model::by(DEEPSEEK);
    let output = "<tool_call>output1</tool_call>";
    assert_eq!(closing(&model, &[user("a")], &calling(&["{}"]), &[tool("1")]), open(output));
    assert_eq!(
        closing(&model, &[user("a")], &calling(&["{}", "{}"]), &[tool("1")]),
        ended(&format!("<|im_end|>{output}"))
    );
    let later = [tool("1"), assistant("x"), user("c")];
    assert_eq!(
        closing(&model, &[user("a")], &calling(&["{}"]), &later),
        open(&format!("{output}<|im_start|>Assistantx<|im_end|><|im_start|>Userc<|im_start|>Assistant"))
    );
    // An end token within the arguments does not end the turn.
    let tricky = calling(&["{\"x\": \"<|im_end|>\"}"]);
    assert_eq!(closing(&model, &[user("a")], &tricky, &[tool("1")]), open(output));
    assert_eq!(
        closing(&model, &[user("a")], &assistant("b"), &[user("c")]),
        ended("<|im_end|><|im_start|>Userc<|im_start|>Assistant")
    );
}

#[test]
fn glm_ends_a_turn_with_the_next() {
    let model = Model::by(GLM);
    assert_eq!(
        closing(&model, &[user("a")], &assistant("b"), &[user("c")]),
        open("<|im_start|>\nc<think>\n")
    );
    assert_eq!(closing(&model, &[user("a")], &assistant("b"), &[tool("c")]), open("<tool_call>\nc<think>\n"));
}

#[test]
fn mistral_moves_its_tools() {
    let model = Model::by(MISTRAL);
    let inputs = RequestInputs {
        tools: Some(json!([{"type": "function", "function": {"name": "f"}}])),
        ..RequestInputs::default()
    };
    let listed = "<tool_call>[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": null, \"parameters\": null}}]</tool_call>";
    let found = |answer: &Value, new: &[Value]| {
        tail_with(&model, &inputs, &[user("a")], answer, new).unwrap().closing
    };
    assert_eq!(found(&assistant("b"), &[user("c")]), format!("<|im_end|>{listed}<|im_start|>c<think>"));
    assert_eq!(
        found(&calling(&["{}"]), &[tool("2")]),
        "<|im_end|><tool_call>{\"content\": 2, \"call_id\": \"1\"}</tool_call>"
    );
}

#[test]
fn templates_of_other_kinds_have_no_tail() {
    let found = |template: &str| tail(&Model::by(template), &[user("a")], &assistant("b"), &[user("c")]);
    assert!(matches!(found(PLAIN), Err(NoTail::NoEndToken)));
    assert!(matches!(found(TWICE), Err(NoTail::Shown(2))));
    assert!(matches!(found(FORGETFUL), Err(NoTail::Shown(0))));
    let unsteady = "{% for m in messages %}{{ m.content }}{% if loop.last %}<|im_end|>{% else %}<|im_start|>{% endif %}{% endfor %}";
    assert!(matches!(found(unsteady), Err(NoTail::NoEndToken)));
}

fn any_message() -> impl Strategy<Value = Value> {
    let content = "(<\\|im_end\\|>|<\\|im_start\\|>|<tool_call>|</tool_call>|<think>|[a{}\"\n é]){0,4}";
    (0..4u8, content).prop_map(|(kind, content)| match kind {
        0 => user(&content),
        1 => tool(&content),
        2 => assistant(&content),
        _ => calling(&[&json!({"x": content}).to_string()]),
    })
}

/// Inserts unique words into the answer: in its last call, or as its content.
fn marked(answer: &Value, words: &str, in_call: bool) -> Option<Value> {
    let mut answer = answer.clone();
    match in_call {
        true => {
            let last = answer.get_mut("tool_calls")?.as_array_mut()?.last_mut()?;
            last["function"]["arguments"] = json!({"z": words}).to_string().into();
        }
        false => answer["content"] = words.into(),
    }
    Some(answer)
}

static MODELS: LazyLock<[Model; 9]> =
    LazyLock::new(|| [QWEN3, GEMMA, LLAMA3, DEEPSEEK, GLM, MISTRAL, PLAIN, TWICE, FORGETFUL].map(Model::by));

proptest! {
    /// For any conversation, the tail equals the text after the answer in the rendering of all messages.
    #[test]
    fn no_template_gives_a_wrong_tail(
        which in 0..9usize,
        before in prop::collection::vec(any_message(), 1..4),
        answer in any_message(),
        new in prop::collection::vec(any_message(), 0..4),
    ) {
        let model = &MODELS[which];
        let mut answer = answer;
        answer["role"] = json!("assistant");
        if let Ok(tail) = tail(model, &before, &answer, &new) {
            let mark = "sun-and-moon";
            let shown = [true, false].into_iter().find_map(|in_call| {
                let text = model.text(&[before.clone(), vec![marked(&answer, mark, in_call)?], new.clone()].concat(), &RequestInputs::default());
                text.contains(mark).then_some(text)
            });
            let whole = shown.unwrap();
            prop_assert!(whole.ends_with(&tail.closing), "{whole:?} {tail:?}");
            let between = whole.strip_suffix(tail.closing.as_str()).unwrap().rsplit_once(mark).unwrap().1;
            // At most the end of the call stands between them.
            prop_assert!(
                ["", "\"}\n</tool_call>", "\"}}\n</tool_call>", "\"}}", "\"}, \"name\": \"f\"}\n</tool_call>",
                 "\"}, \"name\": \"f\"}, \"type\": \"function\"}]"].contains(&between),
                "{between:?} {tail:?}"
            );
        }
    }
}
