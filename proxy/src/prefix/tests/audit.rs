//! Tests of audits.

use std::time::Duration;

use axum::Router;
use axum::routing::post;
use tokio::net::TcpListener;

use super::*;
use crate::common::metrics::{Audit, FlawCounts, Metrics};
use crate::prefix::ExactPrefix;
use crate::prefix::request_kind::RequestKind;
use crate::store::{OpenedStore, Store, StoreSettings};
use crate::upstream::policy::Policy;
use crate::upstream::{Pool, PoolSettings};

/// A template that renders every message but one.
const TEMPLATE: &str = "{% for message in messages %}{% if message.content == 'broken' %}\
     {{ raise_exception('on purpose') }}{% endif %}{{ message.content }}{% endfor %}";

/// Returns the exact prefix before a server that renders every conversation to the ids 1 and 2.
async fn prefix() -> (Arc<ExactPrefix>, tempfile::TempDir) {
    let tokenize = || std::future::ready(json!({"tokens": [1, 2]}).to_string());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let router = Router::new().route("/tokenize", post(tokenize));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let data = tempfile::tempdir().unwrap();
    let OpenedStore { store, .. } = Store::open(data.path(), StoreSettings::default()).unwrap();
    let (policy, patience) = (Arc::new(Policy::restored(&[])), Duration::from_secs(30));
    let (settings, flaws) = (PoolSettings::default(), FlawCounts::default());
    let pool = Pool::start(vec![address], settings, patience, policy, store.clone(), flaws).unwrap();
    let metrics = Arc::new(Metrics::new());
    (ExactPrefix::start(RenderSettings::default(), pool, store, metrics).unwrap(), data)
}

#[tokio::test]
async fn a_local_rendering_that_fails_says_nothing_of_the_server() {
    let ready = Arc::new(Model::by(TEMPLATE).0);
    let trial = TrialId::new("t").unwrap();
    for (content, expected) in [("fine", Audit::Different), ("broken", Audit::Failed)] {
        let (prefix, _data) = prefix().await;
        let text = chat(&[user(content)]).to_string();
        let request = PromptRequest::read(&text).unwrap();
        let Looked { conversation, inputs, .. } = Memory::default().find(&request).unwrap();
        let shape = RequestKind::of(&conversation.messages(), &inputs);
        let seed = PendingAnswer { conversation, inputs, maker: Maker::HereBefore };
        assert_eq!(prefix.audit(Arc::clone(&ready), &trial, seed).await, expected, "{content}");
        assert_eq!(prefix.trust.is_off(&shape, &trial), expected == Audit::Different, "{content}");
        let refuted = prefix.refuted_kinds().await;
        assert_eq!(!refuted.is_empty(), expected == Audit::Different, "{content}: {refuted:?}");
    }
}

#[tokio::test]
async fn the_differences_are_read_after_the_audit_that_has_begun() {
    let (prefix, _data) = prefix().await;
    let model = Model::by(TEMPLATE);
    let (call, _) = answered(&[], vec![model.plain_answer("fine")]);
    prefix.renderer.set(Some(Arc::new(model.0))).unwrap();
    let text = chat(&[user("fine")]).to_string();
    let request = PromptRequest::read(&text).unwrap();
    let Looked { conversation, inputs, .. } = Memory::default().find(&request).unwrap();
    prefix.audit_later(&call, &PendingAnswer { conversation, inputs, maker: Maker::HereBefore });
    let refuted = prefix.refuted_kinds().await;
    let reasons: Vec<_> = refuted.iter().map(|kind| kind.reason.as_str()).collect();
    assert_eq!(reasons, ["the server rendered the messages to other ids"]);
}
