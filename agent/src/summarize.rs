//! Replaces a conversation with a shorter one, through three helper conversations. Their roles are those of
//! Terminus-2's summarisation.

use thiserror::Error;

use crate::chat::{ChatClient, ChatError, Reply, Role, Said};
use crate::conversation::Exchanges;
use crate::prompt::summarize as prompt;

/// One helper conversation: its last question, and the answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Helper {
    pub(crate) purpose: Purpose,
    pub(crate) asked: String,
    pub(crate) reply: Reply,
}

/// The purpose of a helper conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It has the conversation and summarises it.
    Summary,
    /// It has the summary and asks for missing information.
    Questions,
    /// It has the conversation and answers the questions.
    Answers,
    /// It has the end of the screen and names the next steps.
    Brief,
}

/// The results of the three helper conversations.
pub(crate) struct Handover {
    pub(crate) summary: Helper,
    pub(crate) questions: Helper,
    pub(crate) answers: Helper,
}

/// Why a conversation was not replaced.
#[derive(Debug, Error)]
pub(crate) enum HandoverError {
    #[error(transparent)]
    Model(#[from] ChatError),
    /// A truncated summary is worse than the fallback without a summary.
    #[error("a helper's answer was cut off by the limit on its length")]
    CutOff,
}

/// The input of the helpers apart from the conversation.
#[derive(Clone, Copy)]
pub(crate) struct Work<'a> {
    pub(crate) instruction: &'a str,
    /// The current screen of the terminal.
    pub(crate) screen: &'a str,
}

/// Runs the three helper conversations one after the other.
pub(crate) async fn hand_over(
    chat: &ChatClient,
    conversation: &Exchanges,
    work: Work<'_>,
) -> Result<Handover, HandoverError> {
    let asked = prompt::summarize(work.instruction);
    let summary = help(chat, Purpose::Summary, conversation.messages(), asked).await?;

    let asked = prompt::ask(work.instruction, &summary.reply.content, work.screen);
    // Without the conversation: only a reader who lacks it finds the gaps in the summary.
    let questions = help(chat, Purpose::Questions, Vec::new(), asked).await?;

    // The answers come from the model with the full conversation, which also knows its own summary.
    let mut told = conversation.with(&summary.asked);
    told.push(Said { role: Role::Assistant, content: &summary.reply.content });
    let answers = help(chat, Purpose::Answers, told, prompt::answer(&questions.reply.content)).await?;
    Ok(Handover { summary, questions, answers })
}

/// Asks for the next steps only, if the conversation leaves no room for a summary.
pub(crate) async fn ask_briefly(chat: &ChatClient, work: Work<'_>) -> Result<Helper, HandoverError> {
    let asked = prompt::summarize_briefly(work.instruction, end_of(work.screen));
    help(chat, Purpose::Brief, Vec::new(), asked).await
}

/// The maximal number of characters of the screen in a prompt that must be short.
const END_OF_SCREEN: usize = 1000;

/// Returns the last characters of the screen.
pub(crate) fn end_of(screen: &str) -> &str {
    let start = screen.char_indices().nth_back(END_OF_SCREEN - 1).map_or(0, |(start, _)| start);
    screen.get(start..).unwrap_or(screen)
}

async fn help(
    chat: &ChatClient,
    purpose: Purpose,
    mut told: Vec<Said<'_>>,
    asked: String,
) -> Result<Helper, HandoverError> {
    told.push(Said { role: Role::User, content: &asked });
    let reply = chat.complete(&told).await?;
    tracing::debug!(?purpose, cut_off = reply.cut_off, "a helper conversation");
    if reply.cut_off { Err(HandoverError::CutOff) } else { Ok(Helper { purpose, asked, reply }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_screen_is_its_last_characters() {
        let screen: String = "é".repeat(3000) + "end";
        assert_eq!(end_of(&screen).chars().count(), END_OF_SCREEN);
        assert!(end_of(&screen).ends_with("éend"));
        assert_eq!(end_of("short"), "short");
    }
}
