//! Who kept the tokens of a call.

use crate::row::RolloutRow;

/// Who kept the tokens of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The proxy: they are what vLLM said.
    Captured,
    /// The agent, which handed them back after its work: they are what it says.
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

    /// That of a row; none where it says something unknown. Rows that say nothing were captured.
    pub fn of(row: &RolloutRow) -> Option<Self> {
        let Some(name) = &row.origin else { return Some(Self::Captured) };
        Self::ALL.into_iter().find(|origin| origin.as_str() == name)
    }
}
