//! Whoever renders: the files of the model where they are at hand, else the server.

use std::borrow::Cow;

use rolltap_rollout::token::TokenId;
use serde_json::{Value as Json, json};

use super::asked::AskedRenderer;
use super::{LocalRenderer, RenderError, RequestInputs};

/// One way to render, and what it is given.
pub(crate) enum Renderer {
    Local(Box<LocalRenderer>),
    /// Waits for a server: only for threads that may block.
    Asked(AskedRenderer),
}

/// A message in the form that a renderer takes: the one that made it.
#[derive(Clone, Debug)]
pub(crate) enum RenderMessage {
    Read(super::message::TemplateMessage),
    AsSent(Json),
}

/// What a request gives the template beside its messages, in the form that a renderer takes: the one that made it.
#[derive(Clone, Debug)]
pub(crate) enum RenderInputs {
    Read(super::inputs::TemplateInputs),
    AsSent(Box<RequestInputs>),
}

/// A conversation's text.
#[derive(Debug)]
pub(crate) struct Rendering {
    text: String,
    /// Where the server has told them. The text is then what they decode to, which some tokenizers do not do exactly.
    ids: Option<Vec<TokenId>>,
}

impl Renderer {
    /// A chat request's message.
    pub(crate) fn message(&self, message: &Json) -> Result<RenderMessage, RenderError> {
        Ok(match self {
            Self::Local(local) => RenderMessage::Read(local.message(message)?),
            Self::Asked(_) => RenderMessage::AsSent(message.clone()),
        })
    }

    /// What a request gives the template beside its messages.
    pub(crate) fn inputs(&self, inputs: &RequestInputs) -> Result<RenderInputs, RenderError> {
        Ok(match self {
            Self::Local(local) => RenderInputs::Read(local.inputs(inputs)?),
            Self::Asked(_) => RenderInputs::AsSent(Box::new(inputs.clone())),
        })
    }

    /// What the template makes of a conversation.
    pub(crate) fn render(
        &self,
        messages: &[RenderMessage],
        inputs: &RenderInputs,
        add_generation_prompt: bool,
    ) -> Result<Rendering, RenderError> {
        match (self, inputs) {
            (Self::Local(local), RenderInputs::Read(inputs)) => {
                let messages: Vec<_> = messages.iter().map(RenderMessage::read).collect::<Result<_, _>>()?;
                let text = local.render(&messages, inputs, add_generation_prompt)?;
                Ok(Rendering { text, ids: None })
            }
            (Self::Asked(asked), RenderInputs::AsSent(inputs)) => {
                let messages: Vec<_> =
                    messages.iter().map(RenderMessage::as_sent).collect::<Result<_, _>>()?;
                let ids = asked.render(&messages, inputs, add_generation_prompt)?;
                Ok(Rendering { text: asked.decode(&ids)?, ids: Some(ids) })
            }
            _ => Err(of_another()),
        }
    }

    /// The ids of a rendering.
    pub(crate) fn ids<'r>(&self, rendering: &'r Rendering) -> Result<Cow<'r, [TokenId]>, RenderError> {
        match &rendering.ids {
            Some(ids) => Ok(Cow::Borrowed(ids)),
            None => self.encode(&rendering.text).map(Cow::Owned),
        }
    }

    /// The ids of a text: none are added, and special tokens that stand in the text are recognised.
    pub(crate) fn encode(&self, text: &str) -> Result<Vec<TokenId>, RenderError> {
        match self {
            Self::Local(local) => local.encode(text),
            Self::Asked(asked) => asked.encode(text),
        }
    }

    /// The text of ids.
    pub(crate) fn decode(&self, ids: &[TokenId]) -> Result<String, RenderError> {
        match self {
            Self::Local(local) => local.decode(ids),
            Self::Asked(asked) => asked.decode(ids),
        }
    }

    /// The token that a text begins with, if it is one that is never split.
    pub(crate) fn token_at_start(&self, text: &str) -> Result<Option<TokenId>, RenderError> {
        match self {
            Self::Local(local) => Ok(local.token_at_start(text).map(|(id, _)| id)),
            Self::Asked(asked) => asked.token_at_start(text),
        }
    }

    /// The same, of tokens that are known to be such.
    pub(crate) fn known_at_start(&self, text: &str) -> Option<TokenId> {
        match self {
            Self::Local(local) => local.token_at_start(text).map(|(id, _)| id),
            Self::Asked(asked) => asked.known_at_start(text),
        }
    }

    /// Whether each answer is one of a server, which another time may be another.
    pub(crate) fn asks(&self) -> bool {
        matches!(self, Self::Asked(_))
    }

    /// The ids that end a turn, as far as the model's files tell.
    pub(crate) fn end_ids(&self) -> &[TokenId] {
        match self {
            Self::Local(local) => local.end_ids(),
            Self::Asked(_) => &[],
        }
    }

    /// Which tokenizer it is, where its file is at hand.
    pub(crate) fn hash(&self) -> Option<&str> {
        match self {
            Self::Local(local) => Some(local.hash()),
            Self::Asked(_) => None,
        }
    }
}

impl RenderMessage {
    /// The same message with another text as its content; its tool calls and all else stay.
    pub(crate) fn with_content(&self, content: &str) -> Self {
        match self {
            Self::Read(message) => Self::Read(message.with_content(content)),
            Self::AsSent(message) => {
                let mut message = message.clone();
                if let Some(members) = message.as_object_mut() {
                    members.insert("content".to_owned(), content.into());
                }
                Self::AsSent(message)
            }
        }
    }

    /// The same message with another text as the only argument of its last tool call; none where it calls no tool.
    pub(crate) fn with_argument(&self, argument: &str) -> Option<Self> {
        match self {
            Self::Read(message) => message.with_argument(argument).map(Self::Read),
            Self::AsSent(message) => {
                let mut message = message.clone();
                let call = message.get_mut("tool_calls")?.as_array_mut()?.last_mut()?;
                let arguments = json!({"argument": argument}).to_string();
                call.get_mut("function")?.as_object_mut()?.insert("arguments".to_owned(), arguments.into());
                Some(Self::AsSent(message))
            }
        }
    }

    fn read(&self) -> Result<super::message::TemplateMessage, RenderError> {
        match self {
            Self::Read(message) => Ok(message.clone()),
            Self::AsSent(_) => Err(of_another()),
        }
    }

    fn as_sent(&self) -> Result<Json, RenderError> {
        match self {
            Self::AsSent(message) => Ok(message.clone()),
            Self::Read(_) => Err(of_another()),
        }
    }
}

impl Rendering {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the rendering ends with these tokens; true where its tokens are not known.
    pub(crate) fn may_end_with(&self, ids: &[TokenId]) -> bool {
        self.ids.as_ref().is_none_or(|all| all.ends_with(ids))
    }
}

fn of_another() -> RenderError {
    RenderError::unreadable("a conversation", "it was read for another renderer")
}
