//! The messages for a conversation that grows too long. The model with the conversation writes a summary, a model
//! without the conversation asks for missing information, and the first one answers. The work continues with the
//! questions and the answers.

/// Asks the model that has the conversation for a summary.
pub(crate) fn summarize(instruction: &str) -> String {
    format!(
        "{SUMMARIZE} Someone else takes over, who sees nothing of this conversation but what you write now.\n\n\
         # Task\n\n{instruction}\n\n# Summary\n\n\
         Write a full report, in plain text and without any commands to type:\n\n\
         1. What you did: each step that mattered, and what came of it.\n\
         2. What you found out: files and where they are, settings, versions, error messages, the state of the system.\n\
         3. What went wrong, and how you dealt with it.\n\
         4. Where the work stands right now, and what is left.\n\n\
         Leave nothing out that is needed to go on.\n"
    )
}

/// Asks a model that has only the summary for questions.
pub(crate) fn ask(instruction: &str, summary: &str, screen: &str) -> String {
    format!(
        "{ASK} This is the task, the report of the one who worked at it before you, and what the terminal shows.\n\n\
         # Task\n\n{instruction}\n\n# Report\n\n{summary}\n\n# Terminal screen\n\n{screen}\n\n# Questions\n\n\
         Ask at least five questions about what you need to know and the report does not say. This is your only chance: \
         once they are answered you are alone. Write the questions and nothing else.\n"
    )
}

/// Asks the model that has the conversation and wrote the summary for answers.
pub(crate) fn answer(questions: &str) -> String {
    format!("{ANSWER} Answer them one by one, with all the details.\n\n{questions}\n")
}

/// Returns the first prompt of the shorter conversation.
pub(crate) fn go_on(answers: &str) -> String {
    format!(
        "These are the answers to your questions:\n\n{answers}\n\n\
         Go on with the task from where the work stands. You cannot ask again. From now on answer in the format given \
         at the beginning.\n"
    )
}

/// Asks a model that has only the screen for the next steps, if there is no room for a summary.
pub(crate) fn summarize_briefly(instruction: &str, screen: &str) -> String {
    format!(
        "{BRIEFLY} All that is left of the work is what the terminal shows.\n\n# Task\n\n{instruction}\n\n\
         # End of the terminal screen\n\n{screen}\n\nSay in two or three sentences what to do next.\n"
    )
}

/// Returns the next prompt with those next steps.
pub(crate) fn go_on_briefly(instruction: &str, next_steps: &str) -> String {
    format!(
        "The conversation grew too long and part of it was dropped. Go on with the task.\n\n\
         # Task\n\n{instruction}\n\n# What to do next\n\n{next_steps}\n"
    )
}

/// Returns the next prompt if the model could not name the next steps either.
pub(crate) fn go_on_alone(instruction: &str, screen: &str) -> String {
    format!(
        "The conversation grew too long and part of it was dropped. Go on with the task.\n\n\
         # Task\n\n{instruction}\n\n# End of the terminal screen\n\n{screen}\n"
    )
}

/// Returns the next prompt if the previous one did not fit either.
pub(crate) fn lost() -> String {
    "The conversation grew too long and its end was dropped, with your last answer. Nothing of that was typed. Look at \
     the terminal and go on with the task.\n"
        .to_owned()
}

// The proxy's role rules recognise helper conversations by the beginnings of these texts.
const SUMMARIZE: &str = "This conversation is about to be handed over to another agent.";
const ASK: &str = "You take over a terminal task that another agent has begun.";
const ANSWER: &str = "The agent that takes over has these questions about your report.";
const BRIEFLY: &str = "You take over a terminal task whose conversation grew too long.";
