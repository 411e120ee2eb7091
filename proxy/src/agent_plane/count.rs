//! Requests that count the tokens of a prompt. They sample nothing, so the proxy does not record them.

use bytes::Bytes;
use http::{Method, Response};

use crate::agent_plane::answer::{head_for_agent, read_answer, set_content_type};
use crate::agent_plane::error::AgentError;
use crate::agent_plane::request::AgentRequest;
use crate::agent_plane::{AgentPlane, AnswerBody, whole};
use crate::dialect;
use crate::dialect::error_shape::ErrorShape;
use crate::dialect::route::CountEndpoint;
use crate::dialect::upstream_error::UpstreamError;

impl AgentPlane {
    /// Counts the tokens of a prompt with vLLM's `/tokenize`, and answers in the agent's dialect.
    pub(super) async fn count(
        &self,
        request: &AgentRequest<'_, CountEndpoint>,
    ) -> Result<Response<AnswerBody>, AgentError> {
        let AgentRequest { trial, endpoint, parts, .. } = request;
        let body = dialect::prepare_count(endpoint, &request.body, self.names(trial), self.media)?;
        let trial_id = &trial.opened().facts.trial_id;
        let upstream = &self.lifecycle.upstream;
        let sent = upstream.send(trial_id, Method::POST, "/tokenize", &parts.headers, None, body.into());
        let (head, body) = sent.await?.into_parts();
        let mut head = head_for_agent(head);
        let body = read_answer(body, self.longest_silence).await?;
        let answer = if head.status.is_success() {
            dialect::count_answer(endpoint, &body)
        } else {
            // Upstream's error may contain a secret, as in the answers to calls.
            let text = String::from_utf8_lossy(&body);
            let text = self.lifecycle.redaction.redacted(&text);
            ErrorShape::of_path(request.path).translated(&UpstreamError::of_answer(head.status, &text))
        };
        set_content_type(&mut head.headers, answer.is_some().then_some("application/json"));
        Ok(Response::from_parts(head, whole(answer.map_or(body, Bytes::from))))
    }
}
