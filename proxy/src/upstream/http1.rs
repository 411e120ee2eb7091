//! An HTTP/1.1 client that the task of a call drives itself (RFC 9112).
//!
//! hyper's client polls a connection in a task of its own, which passes every part of an answer through a channel. Here,
//! the task that writes to the agent reads the upstream's socket, and no connection holds a buffer: a read goes to the
//! buffer of its thread ([`scratch`]), and only the bytes of the answer are copied out of it.
//!
//! [`Connections`] has the connections to one server, [`connection`] sends a request and reads the head of its answer, and
//! [`AnswerBody`] reads the rest. [`request`], [`sent_body`], [`response_head`], [`framing`] and [`chunked`]
//! are free of I/O.

mod answer_body;
mod chunked;
mod connection;
mod connections;
mod framing;
mod handshake;
mod request;
mod response_head;
mod scratch;
mod sent_body;
#[cfg(test)]
mod tests;

pub(crate) use answer_body::{AnswerBody, AnswerError, ReadLimits};
pub(crate) use connections::Connections;
pub(super) use handshake::ServerTls;
pub(super) use request::Request;
pub(crate) use request::RequestHead;
