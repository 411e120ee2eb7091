//! A histogram of rewards.

/// The number of bars for rewards that are not few different numbers.
const BARS: usize = 20;
/// Up to so many different rewards have a bar each.
const DISTINCT: usize = 12;

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bar {
    /// The smallest reward of the bar.
    pub(crate) from: f64,
    /// The upper bound. It is part of the last bar only. Equal to `from` if all rewards of the bar are equal.
    pub(crate) to: f64,
    /// The number of rewards.
    pub(crate) count: usize,
}

/// Returns the bars of these rewards, in ascending order. Rewards that are not finite are left out.
pub(crate) fn histogram(rewards: impl IntoIterator<Item = f64>) -> Vec<Bar> {
    let mut rewards: Vec<f64> = rewards.into_iter().filter(|reward| reward.is_finite()).collect();
    rewards.sort_by(f64::total_cmp);
    // 0.0 and -0.0 are one reward.
    let equal: Vec<Bar> = rewards
        .chunk_by(|left, right| left == right)
        .map(|same| Bar {
            from: same.first().copied().unwrap_or_default(),
            to: same.first().copied().unwrap_or_default(),
            count: same.len(),
        })
        .collect();
    let (Some(first), Some(last)) = (rewards.first(), rewards.last()) else { return Vec::new() };
    // Halves do not overflow where the difference of two numbers would.
    let width = (last / 2.0 - first / 2.0) / (BARS as f64 / 2.0);
    if equal.len() <= DISTINCT || width == 0.0 {
        return equal;
    }
    let edge = |bar: usize| first + width * bar as f64;
    let mut bars: Vec<Bar> =
        (0..BARS).map(|bar| Bar { from: edge(bar), to: edge(bar + 1), count: 0 }).collect();
    for reward in &rewards {
        let at = (((reward - first) / width) as usize).min(BARS - 1);
        bars.iter_mut().skip(at).take(1).for_each(|bar| bar.count += 1);
    }
    bars
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn few_different_rewards_have_a_bar_each() {
        let bars = histogram([1.0, 0.0, 1.0, f64::NAN, -0.0]);
        let expected = [Bar { from: 0.0, to: 0.0, count: 2 }, Bar { from: 1.0, to: 1.0, count: 2 }];
        assert_eq!(bars, expected);
        assert_eq!(histogram([]), []);
    }

    proptest! {
        #[test]
        fn each_finite_reward_is_in_one_bar(rewards in prop::collection::vec(any::<f64>(), 0..80)) {
            let finite = rewards.iter().filter(|reward| reward.is_finite()).count();
            let bars = histogram(rewards);
            prop_assert_eq!(bars.iter().map(|bar| bar.count).sum::<usize>(), finite);
        }
    }
}
