//! What the model is shown with each question, and how much of its context that takes.

use crate::chat::{Reply, Role, Said};

/// A question and its answer.
#[derive(Clone, Debug, PartialEq)]
struct Exchange {
    asked: String,
    answered: String,
    /// Tokens of the conversation up to and with the question.
    tokens_asked: u64,
    /// Tokens of the conversation up to and with the answer.
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

/// Exchanges with the model, in order. The question that waits for its answer is not among them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Exchanges(Vec<Exchange>);

/// Bytes of one token, where a server does not count: less than most texts have, so that a full context is not missed.
const BYTES_PER_TOKEN: usize = 3;

impl Exchanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether something would be left out by a summary.
    pub(crate) fn is_long(&self) -> bool {
        self.0.len() > 1
    }

    /// All of it, and then this question.
    pub(crate) fn with<'a>(&'a self, question: &'a str) -> Vec<Said<'a>> {
        let mut messages = self.messages();
        messages.push(Said { role: Role::User, content: question });
        messages
    }

    /// All of it.
    pub(crate) fn messages(&self) -> Vec<Said<'_>> {
        self.0.iter().flat_map(Exchange::messages).collect()
    }

    /// Tokens that it takes, by the server's own count where it counts.
    pub(crate) fn tokens(&self) -> u64 {
        self.0.last().map_or(0, |exchange| exchange.tokens)
    }

    /// Adds what was asked last, and the answer to it.
    pub(crate) fn add(&mut self, asked: String, reply: &Reply) {
        let tokens_asked = match reply.usage {
            Some(usage) => usage.prompt_tokens,
            None => self.tokens() + estimate(&asked),
        };
        let answer = reply.usage.map_or_else(|| estimate(&reply.content), |usage| usage.completion_tokens);
        let tokens = tokens_asked + answer;
        self.0.push(Exchange { asked, answered: reply.content.clone(), tokens_asked, tokens });
    }

    /// Drops the latest exchanges until it takes at most so many tokens, but never the first question with its answer.
    /// Returns how many were dropped.
    pub(crate) fn unwind(&mut self, at_most: u64) -> usize {
        let before = self.0.len();
        while self.0.len() > 1 && self.tokens() > at_most {
            self.0.pop();
        }
        before - self.0.len()
    }

    /// Begins anew: the first question stays, with the rules and the task; what another conversation began with follows
    /// on it in the same message, since templates of models want the roles to alternate.
    pub(crate) fn hand_over(&mut self, asked: &str, reply: &Reply) {
        let Some(first) = self.0.first().cloned() else { return };
        let mut taken_over = Self::default();
        taken_over.add(asked.to_owned(), reply);
        for exchange in &mut taken_over.0 {
            exchange.asked = format!("{}\n\n{}", first.asked.trim_end(), exchange.asked);
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
