use std::time::Duration;

use rolltap_proxy::api::{OpeningSecret, TrialState};
use rolltap_proxy::{AdminRole, NewAdminToken, RunningProxy, Settings, TokenName};
use rolltap_rollout::ids::TaskId;
use rolltap_testing::limit;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Starts a real proxy on free ports. Its upstream does not exist.
async fn proxy(data: &tempfile::TempDir, token: Option<&str>) -> RunningProxy {
    let nobody = vec!["http://127.0.0.1:9".parse().unwrap()];
    rolltap_proxy::start(Settings {
        admin_token: token.map(str::to_owned),
        ..Settings::on_loopback(nobody, data.path().join("data"))
    })
    .await
    .unwrap()
}

fn hello() -> OpenTrial {
    OpenTrial {
        trial_id: Some(TrialId::new("hello__1").unwrap()),
        ..OpenTrial::of_task(TaskId::new("hello").unwrap())
    }
}

#[tokio::test]
async fn a_trial_lives_from_open_to_rollout() {
    let data = tempfile::tempdir().unwrap();
    let proxy = proxy(&data, None).await;
    let admin = AdminClient::new(&format!("http://{}/", proxy.admin_addr()), None).unwrap();
    let opened = admin.open_trial(&hello()).await.unwrap();
    assert!(opened.base_urls.openai.contains(&opened.key) && opened.base_urls.openai.ends_with("/v1"));

    assert_eq!(admin.status(&opened.trial_id).await.unwrap().state, TrialState::Open);
    assert_eq!(admin.seal(&opened.trial_id).await.unwrap().state, TrialState::Sealed);
    assert_eq!(
        admin.seal(&opened.trial_id).await.unwrap().state,
        TrialState::Sealed,
        "sealing again is fine"
    );
    let reward = PutReward { reward: Some(0.5), ..PutReward::default() };
    assert_eq!(admin.put_reward(&opened.trial_id, &reward).await.unwrap().reward, Some(0.5));

    let calls: Vec<Call> = admin.calls(&opened).await.unwrap().try_collect().await.unwrap();
    let rows: Vec<RolloutRow> =
        admin.rollout(&opened.trial_id, false).await.unwrap().try_collect().await.unwrap();
    assert!(calls.is_empty() && rows.is_empty());
    proxy.shutdown(limit(5)).await.unwrap();
}

#[tokio::test]
async fn a_refusal_names_the_request_and_the_servers_answer() {
    let data = tempfile::tempdir().unwrap();
    let proxy = proxy(&data, None).await;
    let url = format!("http://{}", proxy.admin_addr());
    let admin = AdminClient::new(&url, None).unwrap();
    let error = admin.status(&TrialId::new("nobody").unwrap()).await.unwrap_err();
    assert!(matches!(error, AdminError::Refused { status: 404, .. }), "{error}");
    let text = error.to_string();
    assert!(text.starts_with(&format!("GET {url}/v1/trials/nobody: answered 404: ")), "{text}");
    assert!(!text.contains('{'), "the message, not the JSON around it: {text}");

    admin.open_trial(&hello()).await.unwrap();
    let error = admin.open_trial(&hello()).await.unwrap_err();
    assert!(matches!(error, AdminError::Refused { status: 409, .. }), "{error}");
    proxy.shutdown(limit(5)).await.unwrap();
}

#[tokio::test]
async fn a_token_is_borne() {
    let data = tempfile::tempdir().unwrap();
    let proxy = proxy(&data, Some("open sesame, please")).await;
    let url = format!("http://{}", proxy.admin_addr());
    let stranger = AdminClient::new(&url, None).unwrap();
    let error = stranger.open_trial(&hello()).await.unwrap_err();
    assert!(matches!(error, AdminError::Refused { status: 401, .. }), "{error}");
    let friend = AdminClient::new(&url, Some("open sesame, please".to_owned())).unwrap();
    friend.open_trial(&hello()).await.unwrap();
    proxy.shutdown(limit(5)).await.unwrap();
}

#[tokio::test]
async fn without_the_role_read_a_client_reads_the_calls_and_answers_of_the_trials_that_it_opened() {
    let data = tempfile::tempdir().unwrap();
    let roles = [AdminRole::Open, AdminRole::Reward].into();
    let token = NewAdminToken::generate(&TokenName::new("worker").unwrap(), &roles, None).unwrap();
    let file = data.path().join("tokens.toml");
    token.append_to(&file).unwrap();
    let nobody = vec!["http://127.0.0.1:9".parse().unwrap()];
    let settings = Settings::on_loopback(nobody, data.path().join("data"));
    let proxy = rolltap_proxy::start(Settings { admin_tokens: Some(file), ..settings }).await.unwrap();
    let url = format!("http://{}", proxy.admin_addr());
    let worker = AdminClient::new(&url, Some(token.reveal().to_owned())).unwrap();
    worker.greet_without_reading().await.unwrap();
    assert!(matches!(worker.greet().await, Err(AdminError::Refused { status: 403, .. })));
    for wrong in [None, Some("open sesame, please".to_owned())] {
        let stranger = AdminClient::new(&url, wrong).unwrap();
        let error = stranger.greet_without_reading().await.unwrap_err();
        assert!(matches!(error, AdminError::Refused { status: 401, .. }), "{error}");
    }

    let opened = worker.open_trial(&hello()).await.unwrap();
    worker.seal(&opened.trial_id).await.unwrap();
    let calls: Vec<Call> = worker.calls(&opened).await.unwrap().try_collect().await.unwrap();
    let answers: Vec<CapturedAnswer> = worker.answers(&opened).await.unwrap().try_collect().await.unwrap();
    assert!(calls.is_empty() && answers.is_empty());
    let error = worker.status(&opened.trial_id).await.unwrap_err();
    assert!(matches!(error, AdminError::Refused { status: 403, .. }), "{error}");
    let other = OpenTrial { trial_id: Some(TrialId::new("hello__2").unwrap()), ..hello() };
    let other = worker.open_trial(&other).await.unwrap();
    let mixed = TrialOpened { trial_id: opened.trial_id, ..other };
    let error = worker.calls(&mixed).await.err().unwrap();
    assert!(matches!(error, AdminError::Refused { status: 403, .. }), "{error}");
    proxy.shutdown(limit(5)).await.unwrap();
}

#[tokio::test]
async fn a_repeated_opening_gets_the_same_key() {
    let data = tempfile::tempdir().unwrap();
    let proxy = proxy(&data, None).await;
    let admin = AdminClient::new(&format!("http://{}", proxy.admin_addr()), None).unwrap();
    let asked = OpenTrial { idempotency_key: OpeningSecret::generate(), ..hello() };
    let (first, at_once) = tokio::join!(admin.open_trial(&asked), admin.open_trial(&asked));
    let first = first.unwrap();
    assert_eq!(first, at_once.unwrap());
    admin.seal(&first.trial_id).await.unwrap();
    assert_eq!(first, admin.open_trial(&asked).await.unwrap(), "also after the seal");
    let refused = async |asked: OpenTrial| match admin.open_trial(&asked).await {
        Err(AdminError::Refused { status, .. }) => status,
        other => panic!("{other:?}"),
    };
    let other_name = TrialId::new("hello__2").unwrap();
    assert_eq!(refused(OpenTrial { trial_id: Some(other_name), ..asked.clone() }).await, 409);
    assert_eq!(refused(OpenTrial { trial_id: None, ..asked.clone() }).await, 400);
    assert_eq!(refused(OpenTrial { idempotency_key: OpeningSecret::generate(), ..asked }).await, 409);
    proxy.shutdown(limit(5)).await.unwrap();
}

#[test]
fn the_secret_of_an_opening_is_long_and_not_printed() {
    let secret = OpeningSecret::generate().unwrap();
    let text = String::from(secret.clone());
    assert!(!format!("{secret:?}").contains(&text[..8]) && text.len() == 64);
    for wrong in ["", "short", &"a b ".repeat(10), &"x".repeat(129)] {
        assert!(OpeningSecret::try_from(wrong.to_owned()).is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn an_absent_proxy_is_distinguished_from_a_refusal() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let admin = AdminClient::new(&format!("http://{free}"), None).unwrap().waiting_for(Duration::ZERO);
    assert!(matches!(admin.greet().await, Err(AdminError::Unreachable { .. })));
    let error = admin.open_trial(&hello()).await.unwrap_err();
    assert!(matches!(error, AdminError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&format!("POST http://{free}/v1/trials: no answer")), "{error}");
}

#[tokio::test]
async fn a_proxy_that_is_being_started_is_waited_for() {
    let data = tempfile::tempdir().unwrap();
    let first = proxy(&data, None).await;
    let at = first.admin_addr();
    let admin = AdminClient::new(&format!("http://{at}"), None).unwrap();
    admin.greet().await.unwrap();
    first.shutdown(limit(5)).await.unwrap();
    let asked = tokio::spawn(async move { (admin.open_trial(&hello()).await, admin) });
    let nobody = vec!["http://127.0.0.1:9".parse().unwrap()];
    let settings = Settings { admin: at, ..Settings::on_loopback(nobody, data.path().join("data")) };
    let second = rolltap_proxy::start(settings).await.unwrap();
    let (opened, admin) = asked.await.unwrap();
    assert_eq!(admin.seal(&opened.unwrap().trial_id).await.unwrap().state, TrialState::Sealed);
    second.shutdown(limit(5)).await.unwrap();
}

#[tokio::test]
async fn a_part_of_a_cluster_waits_until_a_node_is_ready() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let admin = AdminClient::new(&format!("http://{at}"), None).unwrap();
    let greeting = tokio::spawn(async move { admin.greet_once_present(Greeter::Reader).await });
    let (mut connection, _) = listener.accept().await.unwrap();
    // A connection that is closed with unread bytes breaks, and with it the answer.
    assert!(connection.read(&mut [0; 4096]).await.unwrap() > 0);
    let busy = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    connection.write_all(busy.as_bytes()).await.unwrap();
    drop((connection, listener));
    let data = tempfile::tempdir().unwrap();
    let nobody = vec!["http://127.0.0.1:9".parse().unwrap()];
    let settings = Settings { admin: at, ..Settings::on_loopback(nobody, data.path().join("data")) };
    let proxy = rolltap_proxy::start(settings).await.unwrap();
    greeting.await.unwrap().unwrap();
    proxy.shutdown(limit(5)).await.unwrap();
}

/// The server never answers, so the client cannot know whether the request was executed.
#[tokio::test]
async fn what_may_have_been_done_is_asked_again_only_where_twice_is_once() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let admin = AdminClient::new(&format!("http://{}", listener.local_addr().unwrap()), None).unwrap();
    let admin = admin.waiting_for(FIRST_WAIT * 2);
    let server = tokio::spawn(async move {
        let mut served = 0;
        loop {
            let Ok(accepted) = tokio::time::timeout(FIRST_WAIT * 10, listener.accept()).await else {
                break served;
            };
            let (mut stream, _) = accepted.unwrap();
            tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 4096]).await.unwrap();
            served += 1;
        }
    });
    let error = admin.open_trial(&hello()).await.unwrap_err();
    assert!(error.may_have_had_effect() && error.is_of_an_absent_proxy(), "{error}");
    let error = admin.seal(&hello().trial_id.unwrap()).await.unwrap_err();
    assert!(matches!(error, AdminError::Unreachable { .. }), "{error}");
    assert_eq!(server.await.unwrap(), 3, "one to open and two to seal");
}

#[test]
fn an_address_that_is_none_is_refused_at_once() {
    for url in ["", "127.0.0.1:7071", "ftp://h", "https://"] {
        assert!(matches!(AdminClient::new(url, None), Err(AdminError::InvalidUrl { .. })), "{url}");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_ours_is_unreadable() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 4096]).await.unwrap();
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n<html></html>";
        tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    });
    let error = AdminClient::new(&url, None).unwrap().open_trial(&hello()).await.unwrap_err();
    assert!(matches!(error, AdminError::Unreadable { .. }), "{error}");
    server.abort();
}
