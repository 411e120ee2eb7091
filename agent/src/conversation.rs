//! The conversation that the model sees with each question, and its number of tokens.

use crate::chat::{Reply, Role, Said};

/// A question and its answer.
#[derive(Clone, Debug, PartialEq)]
struct Exchange {
    asked: String,
    answered: String,
    /// The tokens of the conversation up to and including the question.
    tokens_asked: u64,
    /// The tokens of the conversation up to and including the answer.
    tokens: u64,
}

impl Exchange {
    fn messages(&self) -> [Said<'_>; 2] {
        [
            Said { role: Role::User, content: &self.asked },
            Said { role: Role::Assistant, content: &self.answered },
        ]
    }
}

/// Exchanges with the model, in order. A question without an answer is not among them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Exchanges(Vec<Exchange>);

/// The assumed bytes per token if the server does not count. Most texts have more, so the estimate is too high rather
/// than too low, and a full context is not missed.
const BYTES_PER_TOKEN: usize = 3;

impl Exchanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a summary would replace anything.
    pub(crate) fn is_long(&self) -> bool {
        self.0.len() > 1
    }

    /// Returns all messages, and then this question.
    pub(crate) fn with<'a>(&'a self, question: &'a str) -> Vec<Said<'a>> {
        let mut messages = self.messages();
        messages.push(Said { role: Role::User, content: question });
        messages
    }

    /// Returns all messages.
    pub(crate) fn messages(&self) -> Vec<Said<'_>> {
        self.0.iter().flat_map(Exchange::messages).collect()
    }

    /// Returns the number of tokens, as counted by the server if it counts.
    pub(crate) fn tokens(&self) -> u64 {
        self.0.last().map_or(0, |exchange| exchange.tokens)
    }

    /// Adds the last question and its answer.
    pub(crate) fn add(&mut self, asked: String, reply: &Reply) {
        let tokens_asked = match reply.usage {
            Some(usage) => usage.prompt_tokens,
            // Only the new question is estimated: earlier exchanges already have their number.
            None => self.tokens() + estimate(&asked),
        };
        let answer = reply.usage.map_or_else(|| estimate(&reply.content), |usage| usage.completion_tokens);
        let tokens = tokens_asked + answer;
        self.0.push(Exchange { asked, answered: reply.content.clone(), tokens_asked, tokens });
    }

    /// Removes the latest exchanges until at most `at_most` tokens remain. The first question and its answer always
    /// remain. Returns the number of removed exchanges.
    pub(crate) fn unwind(&mut self, at_most: u64) -> usize {
        let before = self.0.len();
        // The latest exchanges go first, because the first one has the rules and the task.
        while self.0.len() > 1 && self.tokens() > at_most {
            self.0.pop();
        }
        before - self.0.len()
    }

    /// Starts a new conversation. The first question, which has the rules and the task, remains. The first question of
    /// the other conversation follows in the same message, because templates of models require alternating roles.
    pub(crate) fn hand_over(&mut self, asked: &str, reply: &Reply) {
        let Some(first) = self.0.first().cloned() else { return };
        let mut taken_over = Self::default();
        taken_over.add(asked.to_owned(), reply);
        for exchange in &mut taken_over.0 {
            exchange.asked = format!("{}\n\n{}", first.asked.trim_end(), exchange.asked);
            // The answer's tokens are already part of the sums that `add` made, so the first question is added to both.
            exchange.tokens_asked += first.tokens_asked;
            exchange.tokens += first.tokens_asked;
        }
        *self = taken_over;
    }
}

fn estimate(text: &str) -> u64 {
    text.len().div_ceil(BYTES_PER_TOKEN) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::Usage;

    fn reply(content: &str, usage: Option<(u64, u64)>) -> Reply {
        let usage = usage.map(|(prompt_tokens, completion_tokens)| Usage {
            prompt_tokens,
            completion_tokens,
            cached_tokens: 0,
        });
        Reply { content: content.to_owned(), usage, ..Reply::default() }
    }

    fn said(conversation: &Exchanges) -> Vec<&str> {
        conversation.messages().into_iter().map(|said| said.content).collect()
    }

    #[test]
    fn the_servers_count_is_taken_and_else_one_is_guessed() {
        let mut conversation = Exchanges::default();
        conversation.add("q".into(), &reply("a", Some((100, 20))));
        assert_eq!(conversation.tokens(), 120);
        conversation.add("x".repeat(30), &reply(&"y".repeat(31), None));
        assert_eq!(conversation.tokens(), 120 + 10 + 11);
        let roles: Vec<_> = conversation.with("next").into_iter().map(|said| said.role).collect();
        assert_eq!(roles, [Role::User, Role::Assistant, Role::User, Role::Assistant, Role::User]);
    }

    #[test]
    fn unwinding_drops_the_latest_and_keeps_the_first() {
        let mut conversation = Exchanges::default();
        for turn in 1..=5 {
            conversation.add(format!("q{turn}"), &reply("a", Some((turn * 100, 10))));
        }
        assert_eq!(conversation.unwind(310), 2);
        assert_eq!(conversation.tokens(), 310);
        assert_eq!(conversation.unwind(0), 2);
        assert_eq!(said(&conversation), ["q1", "a"]);
    }

    #[test]
    fn after_a_handover_the_first_question_stands_before_the_other_conversation() {
        let mut conversation = Exchanges::default();
        conversation.add("rules and task\n".into(), &reply("a", Some((100, 10))));
        conversation.add("more".into(), &reply("b", Some((900, 10))));
        conversation.hand_over("report", &reply("questions", Some((50, 5))));
        assert_eq!(said(&conversation), ["rules and task\n\nreport", "questions"]);
        assert_eq!(conversation.tokens(), 155);
    }
}
