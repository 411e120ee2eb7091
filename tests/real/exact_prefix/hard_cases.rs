//! Conversations that tempt a proxy to preserve the wrong tokens, or to lose the right ones.

use rolltap_proxy::History;
use rolltap_rollout::branch_cause::BranchCause;
use serde_json::{Value, json};

use super::conversation::tail;
use super::models::TINY;
use super::scene::{Scene, in_each_mode, saying};

const CALL: &str = r#"<tool_call>\n\{"n" ?: 1, "name": "look", "arguments": \{"at":"(sky|sea)", "n":  [1-9]\}\}\n</tool_call>"#;
const PLAIN_CALL: &str =
    r#"<tool_call>\n\{"name": "look", "arguments": \{"at":"(sky|sea)","n": [1-9]\}\}\n</tool_call>"#;

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn an_answer_that_is_cut_inside_of_a_character() {
    in_each_mode(false, async |scene| {
        let mut asked = saying("[日本語🎉]{9}");
        asked["max_tokens"] = json!(4);
        scene.turn("Write.", &asked).await;
        scene.turn("Go on.", &asked).await;
        scene.last_goes_on().await;
    })
    .await;
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn an_answer_of_nothing() {
    in_each_mode(false, async |scene| {
        let silent = json!({"max_tokens": 5, "chat_template_kwargs": {"enable_thinking": false},
            "logit_bias": {TINY.end_of_turn.to_string(): 100}});
        scene.turn("Be silent.", &silent).await;
        assert_eq!(scene.last().await.choices[0].token_ids.len(), 1);
        scene.turn("Now speak.", &saying("[a-z]{4}")).await;
        scene.last_goes_on().await;
    })
    .await;
}

/// The sampled tokens of a stop string are never shown, so no template has them.
#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn an_answer_that_a_stop_string_ended() {
    in_each_mode(false, async |scene| {
        let mut asked = saying("well[a-z]{3} STOP here");
        asked["stop"] = json!(["STOP"]);
        scene.turn("Speak.", &asked).await;
        scene.talk.add_user_message("Go on.");
        let request = scene.talk.request(&asked);
        scene.talk.ask(&asked).await;
        match scene.history {
            History::Sampled => scene.last_goes_on().await,
            _ => scene.last_is_rendered(&request, &[BranchCause::StopStringRemoved]).await,
        }
    })
    .await;
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn another_stop_token_than_the_templates() {
    in_each_mode(false, async |scene| {
        let mut asked = saying("well[a-z]{3}");
        asked["logit_bias"] = json!({END_OF_TEXT.to_string(): 100});
        scene.turn("Speak.", &asked).await;
        assert_eq!(scene.last().await.choices[0].stop_reason, Some(json!(END_OF_TEXT)));
        scene.turn("Go on.", &asked).await;
        scene.last_goes_on().await;
    })
    .await;
}

/// `<|endoftext|>` of the tiny model, which may end an answer too.
const END_OF_TEXT: u32 = 4087;

/// `<think>x</think>` and a word. The template writes the thought with other white space, and shows the word.
#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn a_thought_that_the_agent_sends_back() {
    in_each_mode(false, async |scene| {
        // The tokens come in the order of their bias, and the repetition penalty practically forbids a sampled token.
        let bias = json!({BEGIN_OF_THOUGHT: 100, TINY.end_of_thought.to_string(): 90, X: 50});
        let asked = json!({"temperature": 1, "max_tokens": 40, "structured_outputs": {"regex": "[a-z]{4}"},
            "logit_bias": bias, "repetition_penalty": 100, "bad_words": ["<think></think>"]});
        let answer = scene.turn("Think.", &asked).await;
        assert_eq!(answer.reasoning, "x", "{answer:?}");
        scene.turn("Go on.", &json!({"max_tokens": 4})).await;
        scene.last_goes_on().await;
    })
    .await;
}

/// `<think>` of the tiny model.
const BEGIN_OF_THOUGHT: &str = "4094";
const X: &str = "87";

/// Agents rewrite arguments, give calls other ids, and answer calls in the order in which they end.
#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn two_calls_that_the_agent_writes_down_in_its_own_way() {
    in_each_mode(true, async |scene| {
        let two = format!("{PLAIN_CALL}\n{PLAIN_CALL}");
        let mut calls = scene.turn("Look twice.", &saying(&two)).await.calls;
        assert_eq!(calls.len(), 2, "{}", scene.name());
        let written = scene.talk.history.last_mut().unwrap();
        for (at, call) in written["tool_calls"].as_array_mut().unwrap().iter_mut().enumerate() {
            calls[at].id = format!("mine-{at}");
            call["id"] = json!(calls[at].id);
            let arguments: Value =
                serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
            call["function"]["arguments"] =
                json!(format!("{{\"n\" : {}, \"at\":{}}}", arguments["n"], arguments["at"]));
        }
        scene.talk.results(&calls, "blue");
        scene.talk.ask(&saying("[a-z]{4}")).await;
        scene.last_goes_on().await;
    })
    .await;
}

/// A call that the parser reads, with more in it than a template would write.
#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn a_call_that_no_template_would_write() {
    in_each_mode(true, async |scene| {
        let calls = scene.turn("Look.", &saying(CALL)).await.calls;
        assert_eq!(calls.len(), 1, "{}", scene.name());
        scene.talk.results(&calls, "blue");
        let request = scene.talk.request(&saying("[a-z]{4}"));
        scene.talk.ask(&saying("[a-z]{4}")).await;
        let calls = scene.calls().await;
        // The template drops text without a meaning here. Both continuations are correct, but no third one.
        if tail(&calls[0], &calls[1]).is_some() {
            scene.last_goes_on().await;
        } else {
            assert_eq!(scene.history, History::Faithful);
            scene.last_is_rendered(&request, &[BranchCause::TemplateRewroteHistory]).await;
        }
    })
    .await;
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn a_date_in_the_system_prompt_that_changes() {
    in_each_mode(false, async |scene| {
        scene.turn("Speak.", &saying("[a-z]{4}")).await;
        scene.talk.system = "Today is the 22nd.".to_owned();
        let changed = [BranchCause::HistoryEdited, BranchCause::SubAgent, BranchCause::Compaction];
        goes_its_own_way(scene, &saying("[a-z]{4}"), &changed).await;
    })
    .await;
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn an_answer_that_the_agent_edited() {
    in_each_mode(false, async |scene| {
        scene.turn("Speak.", &saying("[a-z]{4} [a-z]{4}")).await;
        scene.talk.history[1]["content"] = json!("I said something else.");
        goes_its_own_way(scene, &saying("[a-z]{4}"), &[BranchCause::HistoryEdited]).await;
    })
    .await;
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn a_history_whose_beginning_was_dropped() {
    in_each_mode(false, async |scene| {
        for text in ["One.", "Two.", "Three."] {
            scene.turn(text, &saying("[a-z]{4} [a-z]{4}")).await;
        }
        scene.talk.history.drain(..2);
        let edited = [BranchCause::HistoryEdited, BranchCause::Compaction, BranchCause::SubAgent];
        goes_its_own_way(scene, &saying("[a-z]{4}"), &edited).await;
    })
    .await;
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn a_summary_in_place_of_the_history() {
    in_each_mode(false, async |scene| {
        let answer = scene.turn("Read.", &saying("[a-z]{9} [a-z]{9} [a-z]{9}")).await;
        scene.talk.history =
            vec![json!({"role": "user", "content": format!("So far: {}", answer.turn[0]["content"])})];
        let new = [BranchCause::Compaction, BranchCause::HistoryEdited, BranchCause::SubAgent];
        goes_its_own_way(scene, &saying("[a-z]{4}"), &new).await;
    })
    .await;
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn template_arguments_that_change() {
    in_each_mode(false, async |scene| {
        scene.turn("Speak.", &saying("[a-z]{4}")).await;
        let thinking = json!({"max_tokens": 4});
        goes_its_own_way(scene, &thinking, &[BranchCause::InputsChanged]).await;
    })
    .await;
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn tools_that_change() {
    in_each_mode(true, async |scene| {
        scene.turn("Speak.", &saying("[a-z]{4}")).await;
        let mut asked = saying("[a-z]{4}");
        asked["tools"] =
            json!([{"type": "function", "function": {"name": "listen", "parameters": {"type": "object"}}}]);
        goes_its_own_way(scene, &asked, &[BranchCause::InputsChanged]).await;
    })
    .await;
}

/// Makes a further turn, whose prompt must be vLLM's own rendering.
async fn goes_its_own_way(scene: &mut Scene<'_>, asked: &Value, causes: &[BranchCause]) {
    scene.talk.add_user_message("Go on.");
    let request = scene.talk.request(asked);
    scene.talk.ask(asked).await;
    scene.last_is_rendered(&request, causes).await;
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn two_calls_in_flight_on_one_answer() {
    in_each_mode(false, async |scene| {
        let asked = saying("[a-z]{4} [a-z]{4}");
        scene.turn("Speak.", &asked).await;
        let (mut one, mut other) = (scene.talk.clone(), scene.talk.clone());
        one.add_user_message("This way.");
        other.add_user_message("That way.");
        tokio::join!(one.ask(&asked), other.ask(&asked));
        let calls = scene.calls().await;
        scene.goes_on(&calls[1], &calls[0], 0);
        scene.goes_on(&calls[2], &calls[0], 0);
        let rows = scene.stage.rollout(&scene.trial).await;
        let causes: Vec<_> = rows.iter().map(|row| row.branch_cause.as_str()).collect();
        assert_eq!(causes, ["first_call", "fork"], "{}", scene.name());
    })
    .await;
}

#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn a_turn_that_is_asked_again() {
    in_each_mode(false, async |scene| {
        let asked = saying("[a-z]{4} [a-z]{4}");
        scene.turn("Speak.", &asked).await;
        scene.talk.add_user_message("Go on.");
        scene.talk.try_out(&scene.trial, &asked).await;
        scene.talk.ask(&asked).await;
        scene.turn("And on.", &asked).await;
        let calls = scene.calls().await;
        scene.goes_on(&calls[1], &calls[0], 0);
        scene.goes_on(&calls[2], &calls[0], 0);
        scene.goes_on(&calls[3], &calls[2], 0);
    })
    .await;
}

/// The agent continues from the second of two answers.
#[tokio::test]
#[ignore = "needs vLLM: run ./scripts/test"]
async fn the_second_of_two_answers() {
    in_each_mode(false, async |scene| {
        scene.talk.add_user_message("Speak.");
        let mut asked = scene.talk.request(&saying("[a-z]{9} [a-z]{9}"));
        (asked["n"], asked["stream"]) = (json!(2), json!(false));
        let answer = scene.stage.post(&scene.trial.base_urls.openai, "/chat/completions", &asked).await;
        let answer: Value = answer.json().await.unwrap();
        let second = answer["choices"][1]["message"]["content"].clone();
        scene.talk.history.push(json!({"role": "assistant", "content": second}));
        scene.turn("Go on.", &saying("[a-z]{4}")).await;
        let calls = scene.calls().await;
        scene.goes_on(&calls[1], &calls[0], 1);
    })
    .await;
}
