//! Conversations that continue token for token without a local tokenizer: the proxy asks the server.

use serde_json::json;

use crate::conversation::{ROOM, converse, staged_before, whole_of, words};
use crate::model_server::{Ids, ModelServer};

#[tokio::test]
async fn without_a_tokenizer_the_server_is_asked() {
    let server = ModelServer::start(Ids::Taken, ROOM).await;
    let stage = staged_before(&server, None).await;
    let trial = stage.open(json!({})).await;
    converse(&stage, &trial, 1, false).await;
    assert_eq!(server.asked(), 0, "no first turn waits for answers");
    converse(&stage, &trial, 3, true).await;
    let (given, calls) = (server.given(), stage.calls(&trial).await);
    // The agent sent the first turn twice.
    assert_eq!(words(&stage, &trial).await, ["first_call", "resampled", "spliced", "spliced"]);
    for turn in 2..4 {
        let ids = given[turn].as_ref().unwrap();
        assert!(ids.starts_with(&whole_of(&calls[turn - 1])), "turn {turn}");
        assert_eq!(
            server.decode(&ids[whole_of(&calls[turn - 1]).len()..]),
            "\n<|im_start|>user\nand there?<|im_end|>\n<|im_start|>assistant\n"
        );
    }
}

#[tokio::test]
async fn a_server_that_does_not_tokenise_is_asked_once() {
    let server = ModelServer::start(Ids::Taken, ROOM).await;
    server.does_not_tokenise();
    let stage = staged_before(&server, None).await;
    let trial = stage.open(json!({})).await;
    converse(&stage, &trial, 4, false).await;
    assert_eq!(words(&stage, &trial).await, ["first_call", "unproven", "unproven", "unproven"]);
    assert!(server.given().iter().all(Option::is_none));
    assert_eq!(server.asked(), 1);
}
