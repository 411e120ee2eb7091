//! The roles of admin tokens. Each route of the admin plane names the role that it needs ([`super::routes`]).

use std::fmt;

use serde::Serialize;

/// A group of requests to the admin plane that a token permits.
///
/// It has nothing to do with the roles of calls ([`crate::roles`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AdminRole {
    /// Open trials, and close groups.
    Open,
    /// Seal trials, and set their rewards.
    Reward,
    /// Read trials, calls, rollouts, groups, upstreams and policy versions: every GET.
    Read,
    /// Change upstreams and the policy version, pause and resume.
    Operate,
}

impl AdminRole {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Open, Self::Reward, Self::Read, Self::Operate];
    /// Their names, in the order of [`Self::ALL`].
    pub const NAMES: [&str; 4] = ["open", "reward", "read", "operate"];

    /// Returns the name, as in a file of tokens.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Reward => "reward",
            Self::Read => "read",
            Self::Operate => "operate",
        }
    }

    /// Returns the role of a name in [`Self::NAMES`], or `None` if there is no such name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }
}

impl fmt::Display for AdminRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_has_one_name() {
        assert_eq!(AdminRole::ALL.map(AdminRole::as_str), AdminRole::NAMES);
        for role in AdminRole::ALL {
            assert_eq!(AdminRole::named(role.as_str()), Some(role));
            assert_eq!(serde_json::to_value(role).unwrap(), role.as_str());
        }
        assert_eq!(AdminRole::named("admin"), None);
    }
}
