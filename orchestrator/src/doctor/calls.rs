//! Calls of each kind that agents make.

use rolltap_proxy::{GATEWAY_TIMEOUT_REMEDY, GATEWAY_TOO_LARGE_REMEDY};
use rolltap_rollout::call::Call;
use serde_json::{Value, json};

use super::capture;
use super::ledger::Ledger;
use super::probe::{Answer, Message, Probe};
use super::streams::Arrival;

const CHAT: &str = "/v1/chat/completions";
const HELLO: &str = "Say hello.";
/// The tokens of the stream whose pieces are counted.
const STREAMED_TOKENS: u32 = 64;
/// The attempts at a stream. A busy machine reads several events at once, and not each time.
const STREAM_ATTEMPTS: usize = 5;
/// The longest answer of a first turn, in tokens. An answer that is cut off inside its reasoning proves nothing about the
/// next turn.
const MOST_FIRST_TURN: u64 = 1024;
/// The longest prompt in words. A word is about one token.
const MOST_WORDS: u64 = 16_000;

/// Makes calls of all kinds.
pub(super) async fn make(probe: &Probe, ledger: &mut Ledger, progress: &mut impl FnMut(&'static str)) {
    progress("a call");
    if !make_first(probe, ledger).await {
        return;
    }
    progress("a stream");
    stream(probe, ledger).await;
    progress("a conversation of two turns");
    turns(probe, ledger).await;
    for (dialect, requests) in dialects(&probe.served.name) {
        progress(dialect);
        match all(probe, &requests).await {
            Some((found, _)) if found.contains("answered 404") => ledger.degraded(
                dialect,
                found,
                "agents that speak this dialect do not work; let the gateway pass the path on, if it is vLLM's",
            ),
            outcome => report(dialect, outcome, "whole and streamed", ledger),
        }
    }
    progress("tools");
    tools(probe, ledger).await;
    progress("two answers at once");
    let two = request(probe, json!({"n": 2, "max_tokens": 8}));
    report(
        "n = 2",
        all(probe, &[(CHAT.to_owned(), two)]).await,
        "both answers have ids and logprobs",
        ledger,
    );
    progress("a long prompt");
    long_prompt(probe, ledger).await;
    // Last, because the prompts of all calls are compared.
    capture::judge_renderings(&probe.refuted_kinds().await, ledger);
}

/// Makes the simplest call. Returns false if there was no answer, so that other calls would fail too.
pub(super) async fn make_first(probe: &Probe, ledger: &mut Ledger) -> bool {
    let (answer, calls) = match one(probe, CHAT, &request(probe, json!({"max_tokens": 16}))).await {
        Ok(made) => made,
        Err(error) => {
            ledger.broken("answers", error, "check that the server works, and its log");
            return false;
        }
    };
    let Some(call) = calls.first().filter(|_| answer.is_success()) else {
        let remedy = "check the log of the server, and --upstream-api-key";
        ledger.broken("answers", format!("a chat request was answered {}", answer.excerpt()), remedy);
        return false;
    };
    capture::judge_parts(call, ledger);
    reasoning(&answer.message(), ledger);
    true
}

fn reasoning(Message { content, reasoning }: &Message, ledger: &mut Ledger) {
    if reasoning.is_some() {
        ledger.ok("reasoning", "the answer has its reasoning apart from its text");
    } else if content.contains("<think>") || content.contains("</think>") {
        ledger.degraded(
            "reasoning",
            "the answer has its reasoning inside its text",
            "start vLLM with the --reasoning-parser of the model, unless agents expect the tags",
        );
    } else {
        ledger.ok("reasoning", "none in a short answer");
    }
}

async fn stream(probe: &Probe, ledger: &mut Ledger) {
    let extra = json!({"stream": true, "max_tokens": STREAMED_TOKENS, "ignore_eos": true});
    let body = request(probe, extra);
    let mut arrival = None;
    for _ in 0..STREAM_ATTEMPTS {
        let (answer, calls) = match one(probe, CHAT, &body).await {
            Ok(made) => made,
            Err(error) => return ledger.broken("stream", error, "let the gateway pass streams on"),
        };
        if let Some((found, remedy)) = failure(&answer, &calls) {
            return ledger.broken("stream", found, remedy);
        }
        let seen = Arrival::of(&answer);
        arrival = Some(seen);
        if !seen.is_buffered() {
            break;
        }
    }
    let Some(arrival @ Arrival { events, pieces, first, last }) = arrival else { return };
    let found = format!(
        "{events} events in {pieces} pieces, the first after {:.0} ms, the last after {:.0} ms",
        first.as_secs_f64() * 1e3,
        last.as_secs_f64() * 1e3
    );
    if arrival.is_buffered() {
        let remedy = "turn buffering off in the gateway: proxy_buffering off in nginx, \
                      nginx.ingress.kubernetes.io/proxy-buffering: \"off\" at an ingress";
        ledger.degraded("stream", format!("{found}: something in between collects them"), remedy);
    } else {
        ledger.ok("stream", found);
    }
}

async fn turns(probe: &Probe, ledger: &mut Ledger) {
    let made = async {
        let trial = probe.open().await?;
        let room = probe.served.max_len.map_or(MOST_FIRST_TURN, |length| (length / 4).min(MOST_FIRST_TURN));
        // A sampled answer can hold what no template shows again, such as half a character, so that the finding would
        // differ from run to run.
        let greedy = json!({"max_tokens": room, "temperature": 0});
        let first = trial.post(CHAT, &request(probe, greedy)).await?;
        let Message { content, reasoning } = first.message();
        let messages = json!([
            {"role": "user", "content": HELLO},
            {"role": "assistant", "content": content, "reasoning": reasoning},
            {"role": "user", "content": "And now say goodbye."},
        ]);
        let second =
            trial.post(CHAT, &request(probe, json!({"max_tokens": 16, "messages": messages}))).await?;
        Ok::<_, String>((second, trial.calls().await?))
    };
    match made.await {
        Ok((second, calls)) => match failure(&second, &calls) {
            Some((found, remedy)) => ledger.broken("second turn", found, remedy),
            None => capture::judge_turns(&calls, ledger),
        },
        Err(error) => ledger.broken("second turn", error, "check the log of the server"),
    }
}

async fn tools(probe: &Probe, ledger: &mut Ledger) {
    let tool = json!({"type": "function", "function": {
        "name": "get_time", "description": "Returns the time in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }});
    let body = request(probe, json!({"tools": [tool], "max_tokens": 32}));
    match one(probe, CHAT, &body).await {
        Err(error) => ledger.broken("tools", error, "check the log of the server"),
        Ok((answer, _)) if answer.status == 400 => ledger.degraded(
            "tools",
            format!("a request with tools was answered {}", answer.excerpt()),
            "start vLLM with --enable-auto-tool-choice and the --tool-call-parser of the model; agents without tool calls \
             work as it is",
        ),
        Ok((answer, calls)) => match failure(&answer, &calls) {
            Some((found, remedy)) => ledger.broken("tools", found, remedy),
            None => ledger.ok("tools", "the server takes requests with tools"),
        },
    }
}

async fn long_prompt(probe: &Probe, ledger: &mut Ledger) {
    let words = probe.served.max_len.map_or(MOST_WORDS / 4, |tokens| (tokens / 4).min(MOST_WORDS));
    let text = "word ".repeat(usize::try_from(words).unwrap_or_default());
    let body = request(probe, json!({"max_tokens": 1, "messages": [{"role": "user", "content": text}]}));
    match one(probe, CHAT, &body).await {
        Err(error) => ledger.broken("long prompt", error, "check the time-outs of the gateway"),
        Ok((answer, _)) if answer.status == 413 => ledger.broken(
            "long prompt",
            format!("a request of {} kB was answered {}", body.to_string().len() / 1000, answer.excerpt()),
            GATEWAY_TOO_LARGE_REMEDY,
        ),
        Ok((answer, calls)) => match failure(&answer, &calls) {
            Some((found, remedy)) => ledger.broken("long prompt", found, remedy),
            None => {
                let ids = calls.first().map(|call| call.prompt_token_ids.len()).unwrap_or_default();
                ledger.ok("long prompt", format!("{ids} tokens"));
            }
        },
    }
}

/// The requests of each dialect apart from chat completions, whole and streamed.
fn dialects(model: &str) -> [(&'static str, [(String, Value); 2]); 4] {
    let both = |path: &str, body: Value| {
        let streamed = with(body.clone(), json!({"stream": true}));
        [(path.to_owned(), body), (path.to_owned(), streamed)]
    };
    let messages = json!([{"role": "user", "content": HELLO}]);
    let contents = json!({"contents": [{"role": "user", "parts": [{"text": HELLO}]}],
                          "generationConfig": {"maxOutputTokens": 8}});
    let gemini = |method: &str| (format!("/v1beta/models/{model}:{method}"), contents.clone());
    [
        ("completions", both("/v1/completions", json!({"model": model, "prompt": HELLO, "max_tokens": 8}))),
        (
            "responses",
            both("/v1/responses", json!({"model": model, "input": HELLO, "max_output_tokens": 16})),
        ),
        ("messages", both("/v1/messages", json!({"model": model, "messages": messages, "max_tokens": 8}))),
        ("generateContent", [gemini("generateContent"), gemini("streamGenerateContent?alt=sse")]),
    ]
}

/// Returns a chat request. The fields of `extra` replace those of the request.
fn request(probe: &Probe, extra: Value) -> Value {
    with(json!({"model": probe.served.name, "messages": [{"role": "user", "content": HELLO}]}), extra)
}

/// Replaces fields of an object.
fn with(mut body: Value, extra: Value) -> Value {
    if let (Some(body), Value::Object(extra)) = (body.as_object_mut(), extra) {
        body.extend(extra);
    }
    body
}

/// Makes one call in a trial of its own.
async fn one(probe: &Probe, path: &str, body: &Value) -> Result<(Answer, Vec<Call>), String> {
    let trial = probe.open().await?;
    let answer = trial.post(path, body).await?;
    Ok((answer, trial.calls().await?))
}

/// Makes calls in trials of their own. Returns the first problem with its remedy.
async fn all(probe: &Probe, requests: &[(String, Value)]) -> Option<(String, String)> {
    for (path, body) in requests {
        match one(probe, path, body).await {
            Err(error) => return Some((error, "check the log of the server".to_owned())),
            Ok((answer, calls)) => {
                let failed = failure(&answer, &calls);
                if failed.is_some() {
                    return failed;
                }
            }
        }
    }
    None
}

fn report(check: &'static str, problem: Option<(String, String)>, fine: &str, ledger: &mut Ledger) {
    match problem {
        Some((found, remedy)) => ledger.broken(check, found, remedy),
        None => ledger.ok(check, fine),
    }
}

fn failure(answer: &Answer, calls: &[Call]) -> Option<(String, String)> {
    if !answer.is_success() {
        let remedy = match answer.status {
            413 => GATEWAY_TOO_LARGE_REMEDY,
            504 => GATEWAY_TIMEOUT_REMEDY,
            _ => "check the log of the server",
        };
        return Some((format!("the call was answered {}", answer.excerpt()), remedy.to_owned()));
    }
    capture::problem(calls)
}
