//! Requests to the model, and recovery when its context is full.

use super::Episode;
use crate::chat::{ChatError, Message, Reply, Role};
use crate::prompt::summarize as prompt;
use crate::summarize::{self, HandoverError, Work, end_of};

/// The number of free tokens after the latest exchanges were removed, in addition to the requested length of an answer.
const FREE_AFTER_UNWINDING: u64 = 4000;
/// The maximal number of consecutive prompts that do not fit after all measures. Then the run ends.
const MOST_UNANSWERED: u32 = 3;

impl Episode<'_> {
    /// Returns the configured context length, or the server's, if it is needed for summaries.
    pub(super) async fn find_context_length(&self) -> Option<u64> {
        match self.settings.summarize {
            Some(summarize) if summarize.context_length.is_none() => self.chat.context_length().await,
            _ => self.context_length,
        }
    }

    /// Returns the model's answer to the next message. `None` if the message did not fit despite all measures. The next
    /// message then informs the model.
    pub(super) async fn ask(&mut self) -> Result<Option<Reply>, ChatError> {
        match self.complete().await {
            Err(refused @ ChatError::ContextExceeded { .. }) if self.settings.summarize.is_some() => {
                self.recover(refused).await
            }
            other => other.map(Some),
        }
    }

    /// Completes the next message. Stores the model's text unchanged: the tokens of the next prompt begin with those of
    /// this answer only if its text is the same.
    async fn complete(&mut self) -> Result<Reply, ChatError> {
        // State changes only after the answer, so that a failed request can be repeated with a shorter conversation.
        let reply = self.chat.complete(&self.conversation.with(&self.next)).await?;
        self.turns += 1;
        self.unanswered = 0;
        self.conversation.add(std::mem::take(&mut self.next), &reply);
        self.transcript.push(Message { role: Role::Assistant, content: reply.content.clone() });
        Ok(reply)
    }

    /// Summarises the conversation before the context is full. On an error the conversation continues unchanged.
    pub(super) async fn hand_over_ahead(&mut self) {
        let Some(summarize) = self.settings.summarize else { return };
        // A single exchange has nothing that a summary could replace.
        if !self.conversation.is_long() || !summarize.is_due(self.conversation.tokens(), self.context_length)
        {
            return;
        }
        tracing::info!(turn = self.turns, tokens = self.conversation.tokens(), "summing up ahead");
        if let Err(error) = Box::pin(self.hand_over(0)).await {
            tracing::warn!(%error, "the conversation could not be summed up ahead");
        }
    }

    /// Frees space and asks again, with a shorter conversation each time.
    async fn recover(&mut self, refused: ChatError) -> Result<Option<Reply>, ChatError> {
        if self.conversation.is_empty() || self.unanswered >= MOST_UNANSWERED {
            return Err(refused);
        }
        tracing::info!(turn = self.turns, %refused, "making room");
        // Without a known length, the size of the conversation that last fitted is the estimate.
        let length = self.context_length.unwrap_or_else(|| self.conversation.tokens());
        // The server counts the requested length of the answer against the context too.
        let free = FREE_AFTER_UNWINDING + self.settings.max_tokens.map_or(0, u64::from);
        let dropped = self.conversation.unwind(length.saturating_sub(free));
        if let Err(error) = Box::pin(self.hand_over(dropped)).await {
            tracing::info!(%error, "no summary; going on with less");
            self.go_on_with_less(dropped).await;
        }
        match self.complete().await {
            Err(ChatError::ContextExceeded { .. }) => {
                self.unanswered += 1;
                self.say(prompt::lost());
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Replaces the conversation with a summary. An error changes nothing.
    async fn hand_over(&mut self, dropped: usize) -> Result<(), HandoverError> {
        let screen = self.terminal.screen().await;
        let work = Work { instruction: self.instruction, screen: &screen };
        let done = summarize::hand_over(self.chat, &self.conversation, work).await?;
        self.summaries += 1;
        self.conversation.hand_over(&done.questions.asked, &done.questions.reply);
        let question =
            [(Role::User, &done.questions.asked), (Role::Assistant, &done.questions.reply.content)];
        self.transcript.extend(question.map(|(role, content)| Message { role, content: content.clone() }));
        let next = prompt::go_on(&done.answers.reply.content);
        self.record(|recorder, _| {
            recorder.handed_over(dropped, &[done.summary, done.questions, done.answers])
        });
        self.say(next);
        Ok(())
    }

    /// Continues without a summary if there is no room for one, with the next steps in a few words, or with the screen
    /// only.
    async fn go_on_with_less(&mut self, dropped: usize) {
        let screen = self.terminal.screen().await;
        let work = Work { instruction: self.instruction, screen: &screen };
        let brief = summarize::ask_briefly(self.chat, work).await;
        let next = match &brief {
            Ok(brief) => prompt::go_on_briefly(self.instruction, &brief.reply.content),
            Err(_) => prompt::go_on_alone(self.instruction, end_of(&screen)),
        };
        self.record(|recorder, _| {
            recorder.handed_over(dropped, brief.as_ref().ok().map(std::slice::from_ref).unwrap_or_default())
        });
        self.say(next);
    }
}
