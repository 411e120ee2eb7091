//! The advantage of a trial: how its reward compares with those of its group.

use crate::export::choices::named;

named! {
    /// How the advantages of a group are computed. With `r` as a trial's reward and `n` as the number of trials that
    /// count:
    ///
    /// | | |
    /// |---|---|
    /// | `grpo` | `(r - mean) / (std + 1e-6)`, `std` of `n - 1` degrees of freedom |
    /// | `grpo-population` | `(r - mean) / (std + 1e-8)`, `std` of `n` degrees of freedom |
    /// | `mean` | `r - mean` |
    /// | `rloo` | `r` less the mean of the others: `(r - mean) * n / (n - 1)` |
    ///
    /// If all rewards are equal, or there is only one, each advantage is 0.
    pub enum Advantage {
        /// no advantages: the trainer weighs trials itself
        None = "none",
        /// reward less the group's mean, divided by its sample standard deviation (n - 1)
        Grpo = "grpo",
        /// reward less the group's mean, divided by its population standard deviation (n), as in TRL's asynchronous trainer
        GrpoPopulation = "grpo-population",
        /// reward less the mean of the group's other trials
        Rloo = "rloo",
        /// reward less the group's mean
        Mean = "mean",
    }
}

/// The constant that trainers add to the sample deviation. It bounds the advantages of a group with nearly equal
/// rewards.
const EPSILON: f64 = 1e-6;
/// The constant that TRL's asynchronous trainer adds to the population deviation.
const POPULATION_EPSILON: f64 = 1e-8;

impl Advantage {
    /// Returns the advantage of each of these rewards, or `None` if the rule is no advantages.
    ///
    /// The advantages are not finite if the sum or the squares of the rewards overflow.
    pub fn of(self, rewards: &[f64]) -> Option<Vec<f64>> {
        let weigh: fn(&Moments, f64) -> f64 = match self {
            Self::None => return None,
            Self::Grpo => |group, distance| distance / (group.sample_deviation() + EPSILON),
            Self::GrpoPopulation => {
                |group, distance| distance / (group.population_deviation() + POPULATION_EPSILON)
            }
            // The distance to the mean of the others, expressed by the distance to the mean of all.
            Self::Rloo => |group, distance| distance * group.count / (group.count - 1.0),
            Self::Mean => |_, distance| distance,
        };
        if are_equal(rewards) {
            return Some(vec![0.0; rewards.len()]);
        }
        let group = Moments::of(rewards);
        Some(rewards.iter().map(|reward| weigh(&group, reward - group.mean)).collect())
    }
}

/// Returns the mean and the standard deviation of `n - 1` degrees of freedom, or `None` if all rewards are equal.
pub(crate) fn mean_and_deviation(rewards: &[f64]) -> Option<(f64, f64)> {
    let moments = (!are_equal(rewards)).then(|| Moments::of(rewards))?;
    Some((moments.mean, moments.sample_deviation()))
}

/// Whether all rewards are equal, or there is only one. Their mean could differ from them by rounding.
fn are_equal(rewards: &[f64]) -> bool {
    rewards.windows(2).all(|pair| matches!(pair, [left, right] if left == right))
}

struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn of(rewards: &[f64]) -> Self {
        let count = rewards.len() as f64;
        let mean = rewards.iter().sum::<f64>() / count;
        let squares = rewards.iter().map(|reward| (reward - mean).powi(2)).sum();
        Self { count, mean, squares }
    }

    fn sample_deviation(&self) -> f64 {
        // `count` is at least 2, because callers treat a single reward as equal rewards.
        (self.squares / (self.count - 1.0)).sqrt()
    }

    fn population_deviation(&self) -> f64 {
        (self.squares / self.count).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULES: [Advantage; 4] =
        [Advantage::Grpo, Advantage::GrpoPopulation, Advantage::Rloo, Advantage::Mean];

    #[test]
    fn of_a_group_of_four() {
        let rewards = [1.0, 0.0, 0.0, 1.0];
        let deviation = (4.0 * 0.25_f64 / 3.0).sqrt();
        let grpo = 0.5 / (deviation + 1e-6);
        assert_eq!(Advantage::Grpo.of(&rewards), Some(vec![grpo, -grpo, -grpo, grpo]));
        let population = 0.5 / (0.5 + 1e-8);
        assert_eq!(
            Advantage::GrpoPopulation.of(&rewards),
            Some(vec![population, -population, -population, population])
        );
        assert_eq!(Advantage::Mean.of(&rewards), Some(vec![0.5, -0.5, -0.5, 0.5]));
        let rloo = 0.5 * 4.0 / 3.0;
        assert_eq!(Advantage::Rloo.of(&rewards), Some(vec![rloo, -rloo, -rloo, rloo]));
        assert_eq!(Advantage::None.of(&rewards), None);
    }

    #[test]
    fn equal_rewards_and_a_single_one_say_nothing() {
        for rule in RULES {
            assert_eq!(
                rule.of(&[0.1, 0.1, 0.1]),
                Some(vec![0.0; 3]),
                "whose mean is not 0.1 in floating point"
            );
            assert_eq!(rule.of(&[7.0]), Some(vec![0.0]));
            assert_eq!(rule.of(&[]), Some(vec![]));
        }
    }

    proptest! {
        #[test]
        fn rloo_is_the_distance_from_the_others(rewards in prop::collection::vec(-10.0..10.0_f64, 2..9)) {
            let advantages = Advantage::Rloo.of(&rewards).unwrap();
            for (index, (reward, advantage)) in rewards.iter().zip(&advantages).enumerate() {
                let others: Vec<_> =
                    rewards.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, r)| r).collect();
                let mean = others.iter().copied().sum::<f64>() / others.len() as f64;
                prop_assert!((reward - mean - advantage).abs() < 1e-9);
            }
        }

        #[test]
        fn advantages_of_a_group_sum_to_nothing(rewards in prop::collection::vec(-10.0..10.0_f64, 0..9)) {
            for rule in RULES {
                prop_assert!(rule.of(&rewards).unwrap().iter().sum::<f64>().abs() < 1e-6);
            }
        }
    }
}
