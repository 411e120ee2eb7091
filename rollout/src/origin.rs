//! Which side recorded the tokens of a call.

use crate::row::RolloutRow;

/// The side that recorded the tokens of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The proxy recorded the tokens that vLLM reported.
    Captured,
    /// The agent recorded the tokens and reported them after its work.
    Agent,
}

impl Origin {
    /// Every origin.
    pub const ALL: [Self; 2] = [Self::Captured, Self::Agent];

    /// The name in rows.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Captured => "captured",
            Self::Agent => "agent",
        }
    }

    /// Returns the origin of a row, or `None` if the name is unknown. A row without the field was captured.
    pub fn of(row: &RolloutRow) -> Option<Self> {
        let Some(name) = &row.origin else { return Some(Self::Captured) };
        Self::ALL.into_iter().find(|origin| origin.as_str() == name)
    }
}
