//! Spliced prompts: their beginning, their end, and the class of the answer.

use std::sync::LazyLock;

use proptest::prelude::*;
use rolltap_rollout::continuation::Class;

use super::templates::{GEMMA, GLM, LLAMA3, QWEN3};
use super::*;
use crate::common::history::History;
use crate::prefix::splice::{Spliced, Unspliced};

fn splice(model: &Model, history: History, node: &Node, new: &[Value]) -> Result<Spliced, Unspliced> {
    model.0.workshop(history).splice(node, &messages(new))
}

/// Returns the ids of the prompt and of the sampled answer.
fn sequence_of(node: &Node) -> Vec<TokenId> {
    [&ids_of(&node.call().prompt_token_ids), node.sampled()].concat()
}

/// Checks the prompt: the earlier prompt and answer, followed by this text.
#[track_caller]
fn assert_prompt(model: &Model, node: &Node, spliced: &Spliced, closing: &str) {
    let mut expected = sequence_of(node);
    expected.extend(model.encode(closing));
    let ids = ids_of(&spliced.ids);
    assert_eq!(ids, expected, "{:?} {closing:?}", model.decode(&ids));
}

/// Returns the class and the cause in both modes: faithful, sampled.
fn judged(model: &Model, node: &Node, new: &[Value]) -> [String; 2] {
    [History::Faithful, History::Sampled].map(|history| match splice(model, history, node, new) {
        Ok(spliced) => format!("{:?}", spliced.class),
        Err(unspliced) => format!("{} {:?}", unspliced.cause, unspliced.class),
    })
}

const NEXT: &str = "\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n";

#[test]
fn the_tokens_that_were_sampled_stay() {
    let model = Model::fixture();
    let node = model.node(&chat(&[user("a")]), model.plain_answer("Hello there"));
    assert_ne!(model.encode("Hello there"), model.letters("Hello there"), "the case is worth something");
    let spliced = splice(&model, History::Faithful, &node, &[user("c")]).unwrap();
    assert_prompt(&model, &node, &spliced, NEXT);
    assert_eq!(spliced.class, Class::Equal);
    let text = model.decode(&ids_of(&spliced.ids));
    assert_eq!(
        text,
        model.text(&[user("a"), assistant("Hello there"), user("c")], &RequestInputs::default())
    );
}

#[test]
fn a_third_turn_goes_on_from_a_spliced_one() {
    let model = Model::fixture();
    let first = model.node(&chat(&[user("a")]), model.plain_answer("Hello"));
    let spliced = splice(&model, History::Faithful, &first, &[user("c")]).unwrap();
    let memory = Memory::default();
    let body = chat(&[user("a"), assistant("Hello"), user("c")]).to_string();
    let request = PromptRequest::read(&body).unwrap();
    let Looked { conversation, inputs, .. } = memory.find(&request).unwrap();
    let seed = PendingAnswer { conversation, inputs, maker: Maker::Here(spliced.standing.clone()) };
    let prompt = ids_of(&spliced.ids);
    let (call, said) = answered(&prompt, vec![model.plain_answer("Bye")]);
    assert!(memory.answered(&seed, &call, &read_answers(said)).is_empty(), "nothing is to be proven of it");
    let body = chat(&[user("a"), assistant("Hello"), user("c"), assistant("Bye"), user("d")]).to_string();
    let Some(Looked { found: Predecessor::Continues { node, .. }, .. }) =
        memory.find(&PromptRequest::read(&body).unwrap())
    else {
        panic!()
    };
    let spliced = splice(&model, History::Faithful, &node, &[user("c")]).unwrap();
    assert_prompt(&model, &node, &spliced, NEXT);
    assert_eq!(spliced.class, Class::Equal);
}

#[test]
fn how_the_template_would_show_an_answer() {
    let model = Model::fixture();
    let thought = json!({"role": "assistant", "content": "Hello", "reasoning": "hm"});
    let with_thought = || model.samples("<think>\nhm\n</think>\n\nHello<|im_end|>", thought.clone());
    let call = calling(&["{\"b\":1,\"a\":\"x\"}"]);
    let called = model.samples(
        "\n<tool_call>\n{\"name\":\"f\",\"arguments\":{\"b\":1,\"a\":\"x\"}}\n</tool_call><|im_end|>",
        call,
    );
    for (sampled, new, expected) in [
        (model.plain_answer("Hello"), user("c"), ["Equal", "Equal"]),
        (model.plain_answer("\n\nHello"), user("c"), ["Respelled", "Respelled"]),
        (
            model.samples("<think>\n\n</think>\n\nHello<|im_end|>", assistant("Hello")),
            user("c"),
            ["Respelled", "Respelled"],
        ),
        (called, tool("1"), ["Respelled", "Respelled"]),
        (with_thought(), tool("1"), ["Equal", "Equal"]),
        (with_thought(), user("c"), ["template_rewrote_history Some(Rewritten)", "Rewritten"]),
    ] {
        let node = model.node(&chat(&[user("a")]), sampled.clone());
        assert_eq!(judged(&model, &node, std::slice::from_ref(&new)), expected, "{sampled:?} {new}");
        let spliced = splice(&model, History::Sampled, &node, &[new]).unwrap();
        let ids = ids_of(&spliced.ids);
        let kept = sequence_of(&node);
        assert!(ids.starts_with(&kept), "{:?}", model.decode(&ids));
    }
}

#[test]
fn an_empty_block_in_the_generation_prompt_is_a_spelling() {
    let model = Model::fixture();
    let mut body = chat(&[user("a")]);
    body["chat_template_kwargs"] = json!({"enable_thinking": false});
    let node = model.node(&body, model.plain_answer("Hello"));
    let spliced = splice(&model, History::Faithful, &node, &[user("c")]).unwrap();
    assert_eq!(spliced.class, Class::Respelled);
    assert_prompt(&model, &node, &spliced, &format!("{NEXT}<think>\n\n</think>\n\n"));
}

#[test]
fn an_answer_that_ran_out_of_tokens_is_closed() {
    let model = Model::fixture();
    let node = model.node(&chat(&[user("a")]), model.samples("Hello the", assistant("Hello the")));
    let spliced = splice(&model, History::Faithful, &node, &[user("c")]).unwrap();
    assert_prompt(&model, &node, &spliced, &format!("{END}{NEXT}"));
    assert_eq!(spliced.class, Class::Equal);
    // The sample ends in the middle of a character.
    let mut cut = model.samples("Hello é", assistant("Hello"));
    cut.ids.pop();
    assert!(model.decode(&cut.ids).ends_with('\u{fffd}'));
    for (said, class) in [("Hello", Class::Respelled), ("Hello \u{fffd}", Class::Equal)] {
        let node = model.node(&chat(&[user("a")]), Sampled { message: assistant(said), ..cut.clone() });
        let spliced = splice(&model, History::Faithful, &node, &[user("c")]).unwrap();
        assert_prompt(&model, &node, &spliced, &format!("{END}{NEXT}"));
        assert_eq!(spliced.class, class, "{said}");
    }
}

#[test]
fn an_answer_that_another_token_ended_is_not_closed_again() {
    let model = Model::fixture();
    let ended = |token: &str, stop_reason: Value| Sampled {
        stop_reason: Some(stop_reason),
        ..model.samples(&format!("Hello{token}"), assistant("Hello"))
    };
    let stop = u32::from(model.encode("<tool_call>")[0]);
    for sampled in [ended("<|endoftext|>", Value::Null), ended("<tool_call>", json!(stop))] {
        let node = model.node(&chat(&[user("a")]), sampled);
        let spliced = splice(&model, History::Faithful, &node, &[user("c")]).unwrap();
        assert_prompt(&model, &node, &spliced, NEXT);
        assert_eq!(spliced.class, Class::Equal);
    }
    // This token did not end the answer. It is only the last one.
    let node = model.node(&chat(&[user("a")]), ended("<tool_call>", Value::Null));
    let spliced = splice(&model, History::Sampled, &node, &[user("c")]).unwrap();
    assert_prompt(&model, &node, &spliced, &format!("{END}{NEXT}"));
    assert_eq!(spliced.class, Class::Rewritten);
}

#[test]
fn an_answer_that_a_stop_string_ended_holds_hidden_tokens() {
    let model = Model::fixture();
    let sampled =
        Sampled { stop_reason: Some(json!("STOP")), ..model.samples("Hello STOP", assistant("Hello ")) };
    let node = model.node(&chat(&[user("a")]), sampled);
    assert_eq!(judged(&model, &node, &[user("c")]), ["stop_string_removed Some(Rewritten)", "Rewritten"]);
    let spliced = splice(&model, History::Sampled, &node, &[user("c")]).unwrap();
    assert_prompt(&model, &node, &spliced, &format!("{END}{NEXT}"));
    let included =
        Sampled { stop_reason: Some(json!("STOP")), ..model.samples("Hello STOP", assistant("Hello STOP")) };
    let node = model.node(&chat(&[user("a")]), included);
    assert_eq!(judged(&model, &node, &[user("c")]), ["Equal", "Equal"]);
}

#[test]
fn a_turn_that_the_next_one_ends_is_not_begun_twice() {
    let model = Model::by(GLM);
    let stop = |token: &str| Some(json!(u32::from(model.encode(token)[0])));
    let sampled = |token: &str| Sampled {
        stop_reason: stop(token),
        ..model.samples(&format!("Hello{token}"), assistant("Hello"))
    };
    for (token, new, closing) in [
        ("<|im_start|>", user("c"), "\nc<think>\n"),
        ("<tool_call>", tool("c"), "\nc<think>\n"),
        // The token at which the sample stopped does not begin the next message.
        ("<tool_call>", user("c"), "<|im_start|>\nc<think>\n"),
    ] {
        let node = model.node(&chat(&[user("a")]), sampled(token));
        let spliced = splice(&model, History::Faithful, &node, &[new]).unwrap();
        assert_prompt(&model, &node, &spliced, closing);
        assert_eq!(spliced.class, Class::Equal);
    }
    let cut = model.node(&chat(&[user("a")]), model.samples("Hello", assistant("Hello")));
    let spliced = splice(&model, History::Faithful, &cut, &[user("c")]).unwrap();
    assert_prompt(&model, &cut, &spliced, "<|im_start|>\nc<think>\n");
}

#[test]
fn templates_of_other_models() {
    let qwen = Model::by(QWEN3);
    let gemma = Model::by(GEMMA);
    let llama = Model::by(LLAMA3);
    let call = |model: &Model| {
        model.samples("{\"name\": \"f\", \"parameters\": {\"x\": 1}}<|im_end|>", calling(&["{\"x\":1}"]))
    };
    for (name, model, sampled, new, expected) in [
        ("an empty think block at the end alone", &qwen, qwen.plain_answer("Hello"), tool("1"), "Equal"),
        ("white space", &gemma, gemma.plain_answer(" Hello\n"), user("c"), "Respelled"),
        ("only the call is shown", &llama, call(&llama), tool("1"), "Equal"),
    ] {
        let node = model.node(&chat(&[user("a")]), sampled);
        assert_eq!(judged(model, &node, &[new]), [expected, expected], "{name}");
    }
    let node = gemma.node(&chat(&[user("a")]), gemma.plain_answer("Hello"));
    assert_eq!(judged(&gemma, &node, &[tool("1")]), ["unproven None", "unproven None"]);
}

#[test]
fn what_the_server_did_not_render_so_is_not_gone_on_from() {
    let (model, other) = (Model::fixture(), Model::by(GEMMA));
    let node = other.node(&chat(&[user("a")]), other.plain_answer("Hello"));
    let text = "unproven None";
    assert_eq!(judged(&model, &node, &[user("c")]), [text, text]);
    // A prompt with other ids is not the template's prompt, even if its text is the same.
    let (call, said) = answered(
        &model.letters("<|im_start|>user\nHello there<|im_end|>\n<|im_start|>assistant\n"),
        vec![model.plain_answer("b")],
    );
    let memory = Memory::default();
    let body = chat(&[user("Hello there")]).to_string();
    let request = PromptRequest::read(&body).unwrap();
    let Looked { conversation, inputs, .. } = memory.find(&request).unwrap();
    let seed = PendingAnswer { conversation, inputs, maker: Maker::Server };
    let node = memory.answered(&seed, &call, &read_answers(said)).remove(0);
    assert_eq!(judged(&model, &node, &[user("c")]), [text, text]);
}

/// Returns the fixture's template text for a message after an answer.
fn chatml(message: &Value) -> String {
    let content = message["content"].as_str().unwrap();
    match message["role"].as_str().unwrap() {
        "tool" => format!("<|im_start|>user\n<tool_response>\n{content}\n</tool_response><|im_end|>\n"),
        "assistant" => format!("<|im_start|>assistant\n{}<|im_end|>\n", content.trim_start_matches('\n')),
        role => format!("<|im_start|>{role}\n{content}<|im_end|>\n"),
    }
}

fn any_message() -> impl Strategy<Value = Value> {
    let content = "(<\\|im_end\\|>|<\\|im_start\\|>|<tool_call>|the |[a\\{\"\n é]){0,5}";
    (0..4u8, content).prop_map(|(kind, content)| match kind {
        0 => user(&content),
        1 => tool(&content),
        2 => system(&content),
        _ => assistant(&content),
    })
}

static FIXTURE: LazyLock<Model> = LazyLock::new(Model::fixture);

proptest! {
    #[test]
    fn a_prompt_begins_with_what_was_seen_and_sampled(
        before in prop::collection::vec(any_message(), 1..4),
        answer in prop::collection::vec(0..347u32, 0..12),
        said in any_message(),
        new in prop::collection::vec(any_message(), 0..4),
    ) {
        let model = &*FIXTURE;
        let ids: Vec<TokenId> = answer.iter().map(|&id| TokenId::try_from(id).unwrap()).collect();
        let sampled = Sampled { ids, message: assistant(said["content"].as_str().unwrap()), stop_reason: None };
        let node = model.node(&chat(&before), sampled.clone());
        let spliced = splice(model, History::Sampled, &node, &new).unwrap();
        let kept = sequence_of(&node);
        let ids = ids_of(&spliced.ids);
        prop_assert!(ids.starts_with(&kept));
        let is_ended = sampled.ids.last().is_some_and(|last| model.0.ends.contains(last));
        let end = if is_ended { "" } else { END };
        let closing: String = new.iter().map(chatml).collect();
        let closing = format!("{end}\n{closing}<|im_start|>assistant\n");
        prop_assert_eq!(model.decode(&ids), format!("{}{closing}", model.decode(&kept)));
        prop_assert_eq!(&ids[kept.len()..], model.encode(&closing));
        if let Ok(faithful) = splice(model, History::Faithful, &node, &new) {
            prop_assert_eq!(faithful.ids, spliced.ids);
            prop_assert!(faithful.class != Class::Rewritten);
        }
    }
}
