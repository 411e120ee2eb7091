//! The destinations that an agent's requests can reach, down to the bytes: only the calls that the agent plane serves.

use rolltap_proxy::api::TrialState;
use serde_json::json;

use crate::bad_request::{exchange, head, serves_on, set, status};
use crate::harness::request;

/// Paths that are neither `GET /v1/models` nor a call of any dialect. Each is tried with and without the key in front.
const ELSEWHERE: [&str; 32] = [
    "/",
    "/v1/trials",
    "/v1/trials/TRIAL",
    "/v1/trials/TRIAL/reward",
    "/v1/trials/TRIAL/seal",
    "/v1/trials/TRIAL/calls",
    "/v1/policy/pause",
    "/v1/upstreams",
    "/metrics",
    "/healthz",
    "/health",
    "/tokenize",
    "/detokenize",
    "/openapi.json",
    "/invocations",
    "/collective_rpc",
    "/update_weights",
    "/reset_prefix_cache",
    "/sleep",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/v1/chat/completions/../../trials/TRIAL/seal",
    "/v1/chat/completions/%2e%2e/%2e%2e/trials/TRIAL/seal",
    "/v1/chat%2Fcompletions",
    "/v1/chat/completions%00",
    "/v1//chat/completions",
    "//v1/chat/completions",
    "/V1/CHAT/COMPLETIONS",
    "/v1/chat/completions//",
    "/v1/chat/completions;x",
    "/v1/models/../load_lora_adapter",
    "/v1beta/models/sim:loadAdapter",
];

#[tokio::test]
async fn no_path_of_the_agent_plane_leads_to_the_admin_plane_or_to_the_engines_own() {
    let (stage, upstream, trial) = set().await;
    let admin = stage.proxy.admin_addr();
    let body = json!({"rewards": {"reward": 1}}).to_string();
    for elsewhere in ELSEWHERE {
        let path = elsewhere.replace("TRIAL", trial.trial_id.as_str());
        for target in [
            path.clone(),
            format!("/t/{}{path}", trial.key),
            format!("http://{admin}{path}"),
            format!("http://{admin}/t/{}{path}", trial.key),
        ] {
            for method in ["POST", "PUT", "GET", "DELETE", "OPTIONS"] {
                let text = format!(
                    "{method} {target} HTTP/1.1\r\nhost: {admin}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
                     content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                    trial.key,
                    body.len()
                );
                let answer = exchange(&stage, &[text.as_bytes()]).await;
                assert!(matches!(status(&answer), "400" | "404" | "405"), "{method} {target}: {answer}");
            }
        }
    }
    for line in [format!("CONNECT {admin}"), "OPTIONS *".to_owned(), format!("GET //{admin}/v1/trials")] {
        let text = format!(
            "{line} HTTP/1.1\r\nhost: {admin}\r\nx-api-key: {}\r\nconnection: close\r\n\r\n",
            trial.key
        );
        let answer = exchange(&stage, &[text.as_bytes()]).await;
        assert!(matches!(status(&answer), "400" | "404" | "405"), "{line}: {answer}");
    }
    assert_eq!(upstream.heard().len(), 0);
    let trial_now = stage.status(&trial).await;
    assert_eq!((trial_now.state, trial_now.reward_valid), (TrialState::Open, None));
    serves_on(&stage, &trial).await;
}

#[tokio::test]
async fn the_path_at_upstream_is_ours_whatever_the_agents_was() {
    let (stage, upstream, trial) = set().await;
    for path in [
        "/v1/chat/completions?x=/../../sleep",
        "/v1beta/models/..%2f..%2fsleep:streamGenerateContent?alt=sse&y=1",
        "/v1beta/models/%0d%0aX-Evil:%201:streamGenerateContent?alt=sse",
    ] {
        let body = json!({
            "messages": [{"role": "user", "content": "Hello"}], "stream": true,
        });
        let gemini = json!({"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]});
        let body = if path.contains("beta") { gemini } else { body };
        assert_eq!(stage.post(&trial, path, body.to_string()).await.status().as_u16(), 200, "{path}");
    }
    let heads = upstream.heads();
    assert_eq!(heads.len(), 3);
    assert!(heads.iter().all(|head| head.starts_with("POST /v1/chat/completions http/1.1\r\n")), "{heads:?}");
    assert!(heads.iter().all(|head| !head.contains("x-evil")), "{heads:?}");
}

#[tokio::test]
async fn only_harmless_headers_go_upstream() {
    let (stage, upstream, trial) = set().await;
    let body = request(json!({"stream": true})).to_string();
    let lines = format!(
        "x-data-parallel-rank: 3\r\nx-vllm-priority: -9\r\nx-session-id: s\r\n\
         authorization: Bearer {}\r\ncookie: a=b\r\nx-forwarded-for: 127.0.0.1\r\nte: trailers\r\nexpect: 100-continue\r\n\
         upgrade: h2c\r\naccept-encoding: br\r\ncontent-encoding: identity\r\nx-http-method-override: DELETE\r\n\
         content-type: application/json\r\naccept: */*\r\nuser-agent: agent/1\r\ntraceparent: 00-1-2-01\r\nx-request-id: mine\r\n\
         content-length: {}\r\n",
        trial.key,
        body.len()
    );
    let answer = exchange(&stage, &[head(&trial, &lines).as_bytes(), body.as_bytes()]).await;
    assert!(answer.contains(" 200 OK"), "{answer}");
    let heads = upstream.heads();
    let mut names: Vec<_> =
        heads[0].lines().skip(1).filter_map(|line| Some(line.split_once(':')?.0)).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "accept",
            "content-length",
            "content-type",
            "host",
            "traceparent",
            "user-agent",
            "x-request-id",
            "x-session-id",
        ]
    );
    // The id is the proxy's own, not that of the agent.
    assert!(heads[0].contains(&format!("x-session-id: {}~", trial.trial_id)), "{}", heads[0]);
}

#[tokio::test]
async fn a_request_that_two_readers_would_end_elsewhere_reaches_upstream_as_one_or_not_at_all() {
    let (stage, upstream, trial) = set().await;
    let body = request(json!({"stream": true})).to_string();
    let hidden = "POST /v1/load_lora_adapter HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
    let chunk = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for (lines, text) in [
        // By the chunks, the request ends before the hidden text. By the length, it ends before the chunks.
        ("content-length: 4\r\ntransfer-encoding: chunked\r\n", format!("{chunk}{hidden}")),
        ("transfer-encoding: chunked\r\ncontent-length: 4\r\n", format!("{chunk}{hidden}")),
        ("transfer-encoding: identity, chunked\r\n", format!("{chunk}{hidden}")),
        ("transfer-encoding: chunked, identity\r\n", format!("{chunk}{hidden}")),
        ("transfer-encoding: xchunked\r\ncontent-length: 4\r\n", format!("{chunk}{hidden}")),
        ("transfer-encoding : chunked\r\n", format!("{chunk}{hidden}")),
        ("content-length: +5\r\n", format!("{body}{hidden}")),
        ("content-length: 5, 6\r\n", format!("{body}{hidden}")),
        ("x: a\r\n transfer-encoding: chunked\r\n", format!("{chunk}{hidden}")),
        ("user-agent: a\rx-evil: 1\r\ncontent-length: 2\r\n", format!("{{}}{hidden}")),
        ("user-agent: a\nx-evil: 1\r\ncontent-length: 2\r\n", format!("{{}}{hidden}")),
        ("user-agent: a\0b\r\ncontent-length: 2\r\n", format!("{{}}{hidden}")),
    ] {
        let answer = exchange(&stage, &[head(&trial, lines).as_bytes(), text.as_bytes()]).await;
        assert!(matches!(status(&answer), "200" | "400" | "501" | ""), "{lines:?}: {answer}");
    }
    for (head, heard) in upstream.heads().iter().zip(upstream.heard()) {
        assert!(head.starts_with("POST /v1/chat/completions ") && !head.contains("\r\nx-evil"), "{head}");
        let is_whole = serde_json::from_slice::<serde_json::Value>(&heard).is_ok();
        assert!(is_whole, "{}", String::from_utf8_lossy(&heard));
    }
    serves_on(&stage, &trial).await;
}
