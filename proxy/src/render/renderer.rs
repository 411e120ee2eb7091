//! The renderer of a trial: the files of the model if they are available, else the server.

use std::borrow::Cow;

use rolltap_rollout::token::TokenId;
use serde_json::{Value as Json, json};

use super::asked::AskedRenderer;
use super::{LocalRenderer, RenderError, RequestInputs};

/// One way to render.
pub(crate) enum Renderer {
    Local(Box<LocalRenderer>),
    /// Waits for a server, so it is only for threads that may block.
    Asked(AskedRenderer),
}

/// A message in the form of the renderer that created it.
#[derive(Clone, Debug)]
pub(crate) enum RenderMessage {
    Read(super::message::TemplateMessage),
    AsSent(Json),
}

/// The template's inputs beside the messages, in the form of the renderer that created them.
#[derive(Clone, Debug)]
pub(crate) enum RenderInputs {
    Read(super::inputs::TemplateInputs),
    AsSent(Box<RequestInputs>),
}

/// A rendered conversation.
#[derive(Debug)]
pub(crate) struct Rendering {
    text: String,
    /// The ids, if the server returned them. The text is then decoded from them, which is not exact for some
    /// tokenizers.
    ids: Option<Vec<TokenId>>,
}

impl Renderer {
    /// Reads a chat request's message.
    pub(crate) fn message(&self, message: &Json) -> Result<RenderMessage, RenderError> {
        Ok(match self {
            Self::Local(local) => RenderMessage::Read(local.message(message)?),
            Self::Asked(_) => RenderMessage::AsSent(message.clone()),
        })
    }

    /// Reads the inputs of a request that the template gets beside the messages.
    pub(crate) fn inputs(&self, inputs: &RequestInputs) -> Result<RenderInputs, RenderError> {
        Ok(match self {
            Self::Local(local) => RenderInputs::Read(local.inputs(inputs)?),
            Self::Asked(_) => RenderInputs::AsSent(Box::new(inputs.clone())),
        })
    }

    /// Renders a conversation. Fails if a message or the inputs come from another kind of renderer.
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

    /// Returns the ids of a rendering.
    pub(crate) fn ids<'r>(&self, rendering: &'r Rendering) -> Result<Cow<'r, [TokenId]>, RenderError> {
        match &rendering.ids {
            Some(ids) => Ok(Cow::Borrowed(ids)),
            None => self.encode(&rendering.text).map(Cow::Owned),
        }
    }

    /// Returns the ids of a text. Adds none, and recognises special tokens in the text.
    pub(crate) fn encode(&self, text: &str) -> Result<Vec<TokenId>, RenderError> {
        match self {
            Self::Local(local) => local.encode(text),
            Self::Asked(asked) => asked.encode(text),
        }
    }

    /// Returns the text of ids.
    pub(crate) fn decode(&self, ids: &[TokenId]) -> Result<String, RenderError> {
        match self {
            Self::Local(local) => local.decode(ids),
            Self::Asked(asked) => asked.decode(ids),
        }
    }

    /// Returns the token that a text begins with, if that token is never split.
    pub(crate) fn token_at_start(&self, text: &str) -> Result<Option<TokenId>, RenderError> {
        match self {
            Self::Local(local) => Ok(local.token_at_start(text).map(|(id, _)| id)),
            Self::Asked(asked) => asked.token_at_start(text),
        }
    }

    /// Returns the token that a text begins with, if that token is known to be never split. Asks no server.
    pub(crate) fn known_at_start(&self, text: &str) -> Option<TokenId> {
        match self {
            Self::Local(local) => local.token_at_start(text).map(|(id, _)| id),
            Self::Asked(asked) => asked.known_at_start(text),
        }
    }

    /// Returns whether the results come from a server, which may give another answer the next time.
    pub(crate) fn asks(&self) -> bool {
        matches!(self, Self::Asked(_))
    }

    /// Returns the ids that end a turn, as far as the model's files contain them.
    pub(crate) fn end_ids(&self) -> &[TokenId] {
        match self {
            Self::Local(local) => local.end_ids(),
            Self::Asked(_) => &[],
        }
    }

    /// Returns the hash of the tokenizer's file, or `None` if the file is not available.
    pub(crate) fn hash(&self) -> Option<&str> {
        match self {
            Self::Local(local) => Some(local.hash()),
            Self::Asked(_) => None,
        }
    }
}

impl RenderMessage {
    /// Returns the message with another text as its content. All other members stay, including tool calls.
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

    /// Returns the message with another text as the only argument of its last tool call. `None` if it has no tool call.
    pub(crate) fn with_argument(&self, argument: &str) -> Option<Self> {
        match self {
            Self::Read(message) => message.with_argument(argument).map(Self::Read),
            Self::AsSent(message) => {
                let mut message = message.clone();
                let call = message.get_mut("tool_calls")?.as_array_mut()?.last_mut()?;
                // A request carries arguments as JSON text.
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

    /// Returns whether the rendering ends with these tokens. Also true if the tokens of the rendering are unknown.
    pub(crate) fn may_end_with(&self, ids: &[TokenId]) -> bool {
        self.ids.as_ref().is_none_or(|all| all.ends_with(ids))
    }
}

fn of_another() -> RenderError {
    RenderError::unreadable("a conversation", "it was read for another renderer")
}
