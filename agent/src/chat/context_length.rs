//! The number of tokens in the model's context, if the server reports it.

use std::time::Duration;

use reqwest::Url;
use rolltap_rollout::served_models::ServedModels;

use super::ChatClient;

/// The time limit for the list. Without the list, only the time of summaries changes.
const PATIENCE: Duration = Duration::from_secs(10);
/// The maximal size in bytes of a list of models.
const LARGEST: usize = 4 << 20;

impl ChatClient {
    /// Returns the context length in the server's list of models, or `None` if it is not there.
    pub(crate) async fn context_length(&self) -> Option<u64> {
        let url = Url::parse(&format!("{}/models", self.settings.base_url.trim_end_matches('/'))).ok()?;
        match tokio::time::timeout(PATIENCE, self.list(url)).await.ok()? {
            Ok(body) => length_in(&body, &self.settings.model),
            Err(error) => {
                tracing::debug!(%error, "the server lists no models");
                None
            }
        }
    }

    async fn list(&self, url: Url) -> reqwest::Result<Vec<u8>> {
        let request = self.http.get(url).bearer_auth(&self.settings.api_key);
        let mut response = request.send().await?.error_for_status()?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            body.extend_from_slice(&chunk);
            if body.len() > LARGEST {
                // A truncated list would not parse, so a list that is too large counts as no list.
                body.clear();
                break;
            }
        }
        Ok(body)
    }
}

/// Returns the length of the requested model. A server with one model may list it under another name.
fn length_in(body: &[u8], model: &str) -> Option<u64> {
    let ServedModels { models } = ServedModels::parse(body).ok()?;
    let asked_for = models.iter().find(|listed| listed.id == model);
    let only = || models.first().filter(|_| models.len() == 1);
    asked_for.or_else(only)?.max_model_len.filter(|length| *length > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_that_of_the_model_asked_for() {
        let list = br#"{"object": "list", "data": [
            {"id": "a", "max_model_len": 4096, "permission": []}, {"id": "b", "max_model_len": 8192}, {"id": "c"}]}"#;
        for (model, length) in [("a", Some(4096)), ("b", Some(8192)), ("c", None), ("d", None)] {
            assert_eq!(length_in(list, model), length, "{model}");
        }
        assert_eq!(length_in(br#"{"data": [{"id": "a", "max_model_len": 7}]}"#, "alias"), Some(7));
    }
}
