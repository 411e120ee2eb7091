//! Built-in rules for calls of known agents that are not the main work. They recognize the prompts that these programs
//! send.

use rolltap_rollout::call::{CallRole, Dialect};

use super::RoleRule;

/// The message in which a rule searches its text.
#[derive(Clone, Copy)]
enum TextLocation {
    System,
    LastUser,
}

use CallRole::{Compaction, SubAgent, Title};
use Dialect::{ChatCompletions, GenerateContent, Messages, Responses};
use TextLocation::{LastUser, System};

/// The role, the dialect, the message, and the text that identifies such calls.
const BY_TEXT: [(CallRole, Dialect, TextLocation, &str); 15] = [
    // Claude Code. Versions before 2 send the second title prompt.
    (Title, Messages, System, "Generate a concise, sentence-case title (3-7 words)"),
    (Title, Messages, System, "Analyze if this message indicates a new conversation topic"),
    (Compaction, Messages, LastUser, "Your task is to create a detailed summary of "),
    (SubAgent, Messages, System, "You are an agent for Claude Code, Anthropic's official CLI for Claude"),
    // Codex
    (Compaction, Responses, LastUser, "You are performing a CONTEXT CHECKPOINT COMPACTION"),
    // Gemini CLI
    (
        Compaction,
        GenerateContent,
        System,
        "You are the component that summarizes internal chat history into a given structure",
    ),
    // OpenCode
    (Title, ChatCompletions, System, "You are a title generator. You output ONLY a thread title."),
    (Title, Messages, System, "You are a title generator. You output ONLY a thread title."),
    // Terminus-2 hands over in three steps: a summary, questions of the agent that takes over, and answers.
    (Compaction, ChatCompletions, LastUser, "You are about to hand off your work to another AI agent"),
    (Compaction, ChatCompletions, LastUser, "You are picking up work from a previous AI agent on this task"),
    (Compaction, ChatCompletions, LastUser, "The next agent has a few questions for you"),
    // rolltap's own terminal agent uses the same steps with other words.
    (Compaction, ChatCompletions, LastUser, "This conversation is about to be handed over to another agent."),
    (Compaction, ChatCompletions, LastUser, "You take over a terminal task that another agent has begun."),
    (
        Compaction,
        ChatCompletions,
        LastUser,
        "The agent that takes over has these questions about your report.",
    ),
    (
        Compaction,
        ChatCompletions,
        LastUser,
        "You take over a terminal task whose conversation grew too long.",
    ),
];

pub(super) fn rules() -> impl Iterator<Item = RoleRule> {
    // A request for one token expects no real answer: Claude Code checks its quota and whether a model exists this way.
    let probe = RoleRule { max_tokens_at_most: Some(1), ..RoleRule::of(CallRole::Probe) };
    let by_text = BY_TEXT.into_iter().map(|(role, dialect, place, text)| {
        let rule = RoleRule { dialect: Some(dialect), ..RoleRule::of(role) };
        match place {
            System => RoleRule { system_contains: Some(text.to_owned()), ..rule },
            LastUser => RoleRule { last_user_contains: Some(text.to_owned()), ..rule },
        }
    });
    std::iter::once(probe).chain(by_text)
}
