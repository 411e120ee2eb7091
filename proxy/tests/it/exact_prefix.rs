//! Conversations with several turns: each turn is sent as the tokens of the previous turns, and the agent sees no
//! difference.

use reqwest::StatusCode;
use rolltap_proxy::History;
use rolltap_rollout::branch_cause::BranchCause;
use rolltap_rollout::call::CallStatus;
use rolltap_rollout::continuation::{Class, Continuation};
use rolltap_testing::{eventually, limit};
use serde_json::{Value, json};

use crate::conversation::{ROOM, ask, assistant, converse, prompt_of, staged, user, whole_of, word, words};
use crate::harness::{self, Stage, request};
use crate::model_server::{Ids, model_dir};

#[tokio::test]
async fn each_turn_is_asked_for_by_the_tokens_of_those_before() {
    for stream in [false, true] {
        let (server, stage) = staged(Ids::Taken, ROOM).await;
        let trial = stage.open(json!({})).await;
        converse(&stage, &trial, 4, stream).await;
        stage.seal(&trial).await;
        let calls = stage.calls(&trial).await;
        let (heard, given) = (server.heard(), server.given());
        assert_eq!((calls.len(), &given[0]), (4, &None));
        for turn in 1..4 {
            let ids = given[turn].as_ref().unwrap();
            assert!(ids.starts_with(&whole_of(&calls[turn - 1])), "turn {turn}");
            assert_eq!(
                server.decode(&ids[whole_of(&calls[turn - 1]).len()..]),
                "\n<|im_start|>user\nand there?<|im_end|>\n<|im_start|>assistant\n"
            );
            assert_eq!(prompt_of(&calls[turn]), *ids);
            assert_eq!(heard[turn]["messages"].as_array().unwrap().len(), 2 * turn + 1, "the messages stay");
            let Some(Continuation::Spliced { parent, class, .. }) = &calls[turn].continuation else {
                panic!()
            };
            assert_eq!((&parent.call_id, *class), (&calls[turn - 1].call_id, Class::Equal));
        }
        assert!(calls.iter().all(|call| call.flaws.is_empty() && call.status == CallStatus::Complete));
        let rows = stage.rollout(&trial).await;
        assert_eq!((rows.len(), rows[0].calls.len()), (1, 4), "one sequence");
    }
}

#[tokio::test]
async fn a_conversation_goes_on_in_the_next_process_token_for_token() {
    for stream in [false, true] {
        let (server, stage) = staged(Ids::Taken, ROOM).await;
        let trial = stage.open(json!({})).await;
        let mut messages = vec![user("Hi")];
        let mut stage = Some(stage);
        for turn in 0..5 {
            let here = stage.as_ref().unwrap();
            let (_, content) = ask(here, &here.here(&trial), &messages, stream).await;
            messages.extend([assistant(&content), user("and there?")]);
            if turn % 2 == 1 {
                // The proxy restarts twice: after a spliced turn, and after a spliced turn that followed a restart.
                let Stage { upstream, proxy, data, http } = stage.take().unwrap();
                proxy.shutdown(limit(5)).await.unwrap();
                let mut settings = harness::settings(&server.url, &data);
                settings.render.tokenizer = Some(model_dir());
                let proxy = rolltap_proxy::start(settings).await.unwrap();
                stage = Some(Stage { upstream, proxy, data, http });
            }
        }
        let stage = stage.unwrap();
        assert_eq!(words(&stage, &trial).await, ["first_call", "spliced", "spliced", "spliced", "spliced"]);
        stage.seal(&trial).await;
        let rows = stage.rollout(&trial).await;
        assert_eq!((rows.len(), rows[0].calls.len()), (1, 5), "one sequence");
    }
}

#[tokio::test]
async fn a_server_with_a_field_for_ids_gets_them_there() {
    let (server, stage) = staged(Ids::InField, ROOM).await;
    eventually("the server's description is read", async || {
        let trial = stage.open(json!({})).await;
        converse(&stage, &trial, 2, false).await;
        assert_eq!(words(&stage, &trial).await, ["first_call", "spliced"]);
        let last = server.heard().pop().unwrap();
        assert!(last["prompt_token_ids"].is_array() != last["kv_transfer_params"].is_object(), "once");
        last["prompt_token_ids"].is_array()
    })
    .await;
}

#[tokio::test]
async fn a_server_that_ignores_ids_is_known_after_three_calls() {
    for stream in [false, true] {
        let (server, stage) = staged(Ids::Ignored, ROOM).await;
        let trial = stage.open(json!({})).await;
        converse(&stage, &trial, 6, stream).await;
        let calls = stage.calls(&trial).await;
        assert_eq!(
            server.given().iter().map(Option::is_some).collect::<Vec<_>>(),
            [false, true, true, true, false, false]
        );
        let [first, rest @ ..] = &words(&stage, &trial).await[..] else { panic!("no call") };
        assert_eq!(first, "first_call");
        assert!(rest.iter().all(|word| word == "upstream_unable"), "{rest:?}");
        for pair in calls.windows(2) {
            assert!(
                !prompt_of(&pair[1]).starts_with(&whole_of(&pair[0])),
                "the text of the server is recorded"
            );
        }
        assert!(calls.iter().all(|call| call.flaws.is_empty()));
    }
}

#[tokio::test]
async fn a_server_that_refuses_ids_is_asked_by_the_messages() {
    for stream in [false, true] {
        let (server, stage) = staged(Ids::Refused, ROOM).await;
        let trial = stage.open(json!({})).await;
        converse(&stage, &trial, 2, stream).await;
        assert_eq!(server.given().iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(words(&stage, &trial).await, ["first_call", "upstream_unable"]);
        let calls = stage.calls(&trial).await;
        assert_eq!(
            (calls.len(), calls[1].status, calls[1].http_status),
            (2, CallStatus::Complete, Some(200))
        );
        let heard = server.heard();
        assert_eq!(heard[1]["messages"], heard[2]["messages"]);
    }
}

#[tokio::test]
async fn a_prompt_that_is_too_long_is_refused_in_the_words_that_agents_know() {
    for stream in [false, true] {
        let (server, stage) = staged(Ids::Taken, 60).await;
        let trial = stage.open(json!({})).await;
        converse(&stage, &trial, 1, stream).await;
        let long = [user("Hi"), assistant("Hello there"), user(&"x".repeat(70))];
        let (status, message) = ask(&stage, &trial, &long, stream).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(message.starts_with("This model's maximum context length is 60 tokens."), "{message}");
        assert_eq!(server.given().iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, false]);
        let calls = stage.calls(&trial).await;
        assert_eq!((calls[1].status, calls[1].http_status), (CallStatus::Failed, Some(400)));
        // The conversation continues from its last complete turn.
        let next = [user("Hi"), assistant("Hello there"), user("Hi")];
        assert_eq!(ask(&stage, &trial, &next, stream).await.0, StatusCode::OK);
        assert_eq!(words(&stage, &trial).await[2], "spliced");
    }
}

#[tokio::test]
async fn each_trial_has_its_own_way_with_history() {
    let (server, stage) = staged(Ids::Taken, ROOM).await;
    // The sample holds more than the answer shows, as with a stop string or with dropped reasoning.
    server.set_answer("Hello there STOP", "Hello there");
    for (history, given, expected) in [
        (None, false, "template_rewrote_history"),
        (Some(History::Faithful), false, "template_rewrote_history"),
        (Some(History::Sampled), true, "spliced"),
        (Some(History::Off), false, "no continuation"),
    ] {
        let trial = stage.open(history.map_or(json!({}), |history| json!({"history": history}))).await;
        let before = server.heard().len();
        converse(&stage, &trial, 2, false).await;
        assert_eq!(
            (server.given()[before + 1].is_some(), word(&stage.calls(&trial).await[1]).as_str()),
            (given, expected)
        );
    }
}

#[tokio::test]
async fn off_sends_nothing_however_alike() {
    let (server, stage) = staged(Ids::Taken, ROOM).await;
    let trial = stage.open(json!({"history": "off"})).await;
    converse(&stage, &trial, 3, true).await;
    assert!(server.given().iter().all(Option::is_none));
    assert!(stage.calls(&trial).await.iter().all(|call| call.continuation.is_none()));
}

#[tokio::test]
async fn agents_cannot_give_ids() {
    let (server, stage) = staged(Ids::Taken, ROOM).await;
    let trial = stage.open(json!({})).await;
    for key in ["kv_transfer_params", "prompt_token_ids"] {
        let value = if key == "prompt_token_ids" { json!([1]) } else { json!({"prompt_token_ids": [1]}) };
        let answer = stage.chat(&trial, &request(json!({key: value}))).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{key}");
    }
    assert!(server.heard().is_empty());
}

#[tokio::test]
async fn other_dialects_go_on_in_the_same_way() {
    let (server, stage) = staged(Ids::Taken, ROOM).await;
    let turn =
        |role: &str, kind: &str, text: &str| json!({"role": role, "content": [{"type": kind, "text": text}]});
    let part = |role: &str, text: &str| json!({"role": role, "parts": [{"text": text}]});
    let anthropic = (
        "anthropic",
        "/v1/messages",
        "messages",
        [turn("user", "text", "Hi"), turn("assistant", "text", "Hello there"), turn("user", "text", "Go on")],
    );
    let openai = (
        "openai",
        "/responses",
        "input",
        [
            turn("user", "input_text", "Hi"),
            turn("assistant", "output_text", "Hello there"),
            turn("user", "input_text", "Go on"),
        ],
    );
    let gemini = (
        "gemini",
        "/v1beta/models/sim:generateContent",
        "contents",
        [part("user", "Hi"), part("model", "Hello there"), part("user", "Go on")],
    );
    for (family, path, key, turns) in [anthropic, openai, gemini] {
        let trial = stage.open(json!({})).await;
        let base = match family {
            "anthropic" => &trial.base_urls.anthropic,
            "openai" => &trial.base_urls.openai,
            _ => &trial.base_urls.gemini,
        };
        let before = server.heard().len();
        for length in [1, 3] {
            let mut body = json!({"model": "sim", key: turns[..length]});
            if family == "anthropic" {
                body["max_tokens"] = json!(64);
            }
            let answer = stage.http.post(format!("{base}{path}")).json(&body).send().await.unwrap();
            let (status, text) = (answer.status(), answer.text().await.unwrap());
            assert!(status == StatusCode::OK && text.contains("Hello there"), "{family} {text}");
        }
        assert_eq!(words(&stage, &trial).await, ["first_call", "spliced"], "{family}");
        let calls = stage.calls(&trial).await;
        assert!(server.given()[before + 1].as_ref().unwrap().starts_with(&whole_of(&calls[0])), "{family}");
    }
}

#[tokio::test]
async fn calls_of_one_trial_at_once_go_on_from_the_same_answer() {
    let (_server, stage) = staged(Ids::Taken, ROOM).await;
    let trial = stage.open(json!({})).await;
    converse(&stage, &trial, 1, false).await;
    let asked = (0..8).map(|n| {
        let (stage, trial) = (&stage, &trial);
        async move {
            let messages = [user("Hi"), assistant("Hello there"), user(&format!("{n}"))];
            ask(stage, trial, &messages, n % 2 == 0).await
        }
    });
    for (status, content) in futures_util::future::join_all(asked).await {
        assert_eq!((status, content.as_str()), (StatusCode::OK, "Hello there"));
    }
    eventually("all are recorded", async || stage.calls(&trial).await.len() == 9).await;
    let calls = stage.calls(&trial).await;
    for call in &calls[1..] {
        assert_eq!(word(call), "spliced");
        assert!(prompt_of(call).starts_with(&whole_of(&calls[0])));
    }
    // A later request can continue each of them.
    let next = [user("Hi"), assistant("Hello there"), user("5"), assistant("Hello there"), user("more")];
    ask(&stage, &trial, &next, false).await;
    let last = stage.calls(&trial).await.pop().unwrap();
    let parent = last.continuation.as_ref().and_then(Continuation::parent).unwrap().call_id.clone();
    let parent = calls.iter().find(|call| call.call_id == parent).unwrap();
    assert!(prompt_of(&last).starts_with(&whole_of(parent)) && word(&last) == "spliced");
}

#[tokio::test]
async fn trials_know_nothing_of_each_other() {
    let (server, stage) = staged(Ids::Taken, ROOM).await;
    let (one, other) = (stage.open(json!({})).await, stage.open(json!({})).await);
    converse(&stage, &one, 1, false).await;
    let messages = [user("Hi"), assistant("Hello there"), user("Go on")];
    ask(&stage, &other, &messages, false).await;
    assert!(server.given().iter().all(Option::is_none));
    let call = stage.calls(&other).await.remove(0);
    assert_eq!(call.continuation, Some(Continuation::Fresh { cause: BranchCause::FirstCall }));
}

#[tokio::test]
async fn garbage_is_the_servers_to_refuse() {
    let (server, stage) = staged(Ids::Taken, ROOM).await;
    let trial = stage.open(json!({})).await;
    converse(&stage, &trial, 1, false).await;
    let before = server.heard().len();
    let garbage = [
        json!(["x"]),
        json!([{}]),
        json!([user("Hi"), {"role": "assistant", "content": {"a": 1}}, user("c")]),
        json!([user("Hi"), {"role": "assistant"}, 7]),
        json!({"role": "user"}),
    ];
    for (place, messages) in garbage.iter().enumerate() {
        let answer = stage.chat(&trial, &request(json!({"messages": messages}))).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{messages}");
        let error: Value = answer.json().await.unwrap();
        assert_eq!(error["error"]["message"], "these are no messages", "{messages}");
        assert_eq!(server.heard()[before + place]["messages"], *messages);
    }
    ask(&stage, &trial, &[user("Hi"), assistant("Hello there"), user("Go on")], false).await;
    assert_eq!(words(&stage, &trial).await.pop().unwrap(), "spliced");
}

#[tokio::test]
async fn a_long_conversation_goes_on() {
    let (_server, stage) = staged(Ids::Taken, ROOM).await;
    let trial = stage.open(json!({})).await;
    let mut messages: Vec<Value> =
        (0..100).map(|n| user(&format!("{n} {}", "the tool ".repeat(550)))).collect();
    assert!(json!(messages).to_string().len() > 490_000);
    for _ in 0..2 {
        let (status, content) = ask(&stage, &trial, &messages, false).await;
        assert_eq!(status, StatusCode::OK);
        messages.extend([assistant(&content), user("Go on")]);
    }
    assert_eq!(words(&stage, &trial).await, ["first_call", "spliced"]);
    let calls = stage.calls(&trial).await;
    assert!(prompt_of(&calls[1]).starts_with(&whole_of(&calls[0])));
}
