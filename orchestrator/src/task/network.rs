//! The network policies of a task's phases, by Harbor's rules. The environment's policy is the default; agent and
//! verifier may have their own.

use crate::task::{AllowedHosts, NetworkPolicy};

use super::config::{EnvironmentConfig, NetworkMode, StepConfig, TaskConfig, VerifierConfig};

/// The network policy of each phase.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkPlan {
    /// The policy from the start of the environment.
    pub environment: NetworkPolicy,
    /// The policy while the agent works.
    pub agent: NetworkPolicy,
    /// The policy while the tests run.
    pub verifier: NetworkPolicy,
    /// The policies that steps set themselves, in any order. They apply to the same environment.
    steps: Vec<NetworkPolicy>,
}

impl NetworkPlan {
    /// Reads the policies in `task.toml`.
    ///
    /// # Errors
    /// A message with the key and the problem.
    pub(super) fn of(config: &TaskConfig) -> Result<Self, String> {
        let TaskConfig { environment, agent, verifier, .. } = config;
        let ground = ground("environment", environment)?;
        let agent = policy("agent", agent.network_mode, agent.allowed_hosts.as_deref())?;
        let verifier = of_verifier("verifier", verifier)?;
        let mut steps = Vec::new();
        for StepConfig { name, agent, verifier, .. } in &config.steps {
            let section = format!("steps.{name}.agent");
            steps.extend(policy(&section, agent.network_mode, agent.allowed_hosts.as_deref())?);
            steps.extend(of_verifier(&format!("steps.{name}.verifier"), verifier)?);
        }
        Ok(Self {
            agent: agent.unwrap_or_else(|| ground.clone()),
            verifier: verifier.unwrap_or_else(|| ground.clone()),
            environment: ground,
            steps,
        })
    }

    /// Returns the plan of a step. In `config`, the task's values replace those that the step lacks. [`Self::of`] has
    /// validated both.
    pub(super) fn of_step(&self, config: &TaskConfig) -> Self {
        let of = |mode, hosts: &Option<Vec<String>>| {
            policy("", mode, hosts.as_deref()).ok().flatten().unwrap_or_else(|| self.environment.clone())
        };
        Self {
            environment: self.environment.clone(),
            agent: of(config.agent.network_mode, &config.agent.allowed_hosts),
            verifier: of(config.verifier.network_mode, &config.verifier.allowed_hosts),
            steps: Vec::new(),
        }
    }

    /// Returns the plan of an environment for the tests alone. [`Self::of`] has validated both tables.
    pub(super) fn of_verifier(&self, own: &EnvironmentConfig, verifier: &VerifierConfig) -> Self {
        // If the validated table were wrong after all, no network is the safe default.
        let ground = ground("", own).unwrap_or(NetworkPolicy::NoNetwork);
        let tests = policy("", verifier.network_mode, verifier.allowed_hosts.as_deref());
        let tests = tests.ok().flatten().unwrap_or_else(|| ground.clone());
        Self { agent: ground.clone(), environment: ground, verifier: tests, steps: Vec::new() }
    }

    fn phases(&self) -> impl Iterator<Item = &NetworkPolicy> {
        [&self.environment, &self.agent, &self.verifier].into_iter().chain(&self.steps)
    }

    /// Whether every phase has full network access.
    pub fn is_always_public(&self) -> bool {
        self.phases().all(|policy| *policy == NetworkPolicy::Public)
    }

    /// Whether at least one phase has full network access.
    pub fn is_sometimes_public(&self) -> bool {
        self.phases().any(|policy| *policy == NetworkPolicy::Public)
    }
}

/// Returns the policy of an environment. `allow_internet`, the old spelling, counts only if neither new key is set.
fn ground(section: &str, config: &EnvironmentConfig) -> Result<NetworkPolicy, String> {
    let old = (config.allow_internet == Some(false) && config.allowed_hosts.is_none())
        .then_some(NetworkMode::NoNetwork);
    let mode = config.network_mode.or(old);
    Ok(policy(section, mode, config.allowed_hosts.as_deref())?.unwrap_or_default())
}

/// Returns the verifier's own policy. Also validates the policy of its environment, which applies only there.
fn of_verifier(section: &str, config: &VerifierConfig) -> Result<Option<NetworkPolicy>, String> {
    if let Some(own) = &config.environment {
        ground(&format!("{section}.environment"), own)?;
    }
    policy(section, config.network_mode, config.allowed_hosts.as_deref())
}

/// Returns the policy of one section, or `None` if it sets no mode.
///
/// # Errors
/// A message with the key and the problem.
fn policy(
    section: &str,
    mode: Option<NetworkMode>,
    hosts: Option<&[String]>,
) -> Result<Option<NetworkPolicy>, String> {
    // An empty list beside another mode has no effect. Without a mode, its intent is unclear.
    let hosts_given = hosts.is_some_and(|hosts| mode.is_none() || !hosts.is_empty());
    if hosts_given && mode != Some(NetworkMode::Allowlist) {
        return Err(format!("{section}.allowed_hosts is only for network_mode = \"allowlist\""));
    }
    Ok(match mode {
        None => None,
        Some(NetworkMode::Public) => Some(NetworkPolicy::Public),
        Some(NetworkMode::NoNetwork) => Some(NetworkPolicy::NoNetwork),
        Some(NetworkMode::Allowlist) => {
            let hosts = AllowedHosts::parse(hosts.unwrap_or_default().iter().map(String::as_str));
            Some(NetworkPolicy::Allowlist(
                hosts.map_err(|error| format!("{section}.allowed_hosts: {error}"))?,
            ))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<NetworkPlan, String> {
        NetworkPlan::of(&toml::from_str(text).unwrap())
    }

    fn allow(host: &str) -> NetworkPolicy {
        NetworkPolicy::Allowlist(AllowedHosts::parse([host]).unwrap())
    }

    #[test]
    fn phases_have_their_own_policy_or_the_environment_s() {
        assert!(plan("").unwrap().is_always_public());
        let old = plan("[environment]\nallow_internet = false\n").unwrap();
        assert!(old.phases().eq([&NetworkPolicy::NoNetwork; 3]));
        let new = plan(
            "[environment]\nallow_internet = false\nnetwork_mode = \"public\"\n[agent]\nnetwork_mode = \"no-network\"\n\
             [verifier]\nnetwork_mode = \"allowlist\"\nallowed_hosts = [\"example.org\"]\n",
        );
        let new = new.unwrap();
        assert!(new.phases().eq([&NetworkPolicy::Public, &NetworkPolicy::NoNetwork, &allow("example.org")]));
        assert!(new.is_sometimes_public() && !new.is_always_public());
        assert_eq!(
            plan("[environment]\nnetwork_mode = \"allowlist\"\nallowed_hosts = [\"a.b\"]\n").unwrap().agent,
            allow("a.b")
        );
    }

    #[test]
    fn what_cannot_be_is_told_with_its_key() {
        for (text, expected) in [
            ("[agent]\nallowed_hosts = []\n", "agent.allowed_hosts is only for network_mode = \"allowlist\""),
            (
                "[verifier]\nnetwork_mode = \"public\"\nallowed_hosts = [\"x\"]\n",
                "verifier.allowed_hosts is only for network_mode = \"allowlist\"",
            ),
            (
                "[environment]\nnetwork_mode = \"allowlist\"\nallowed_hosts = [\"http://x\"]\n",
                "environment.allowed_hosts: \"http://x\" is no host name",
            ),
        ] {
            let error = plan(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
