//! pass@k, as Harbor computes it.

use std::collections::{BTreeMap, BTreeSet};

/// Returns pass@k by k: the estimated probability that at least one of `k` samples passes, averaged over the tasks. Each
/// sample is the name of its task and the rewards of its verifier. The result is empty unless every sample has exactly
/// one reward and its value is 0 or 1. A sample without rewards has not passed.
pub fn pass_at_k<'s>(
    samples: impl IntoIterator<Item = (&'s str, Option<&'s BTreeMap<String, f64>>)>,
) -> BTreeMap<usize, f64> {
    let mut of_task: BTreeMap<&str, Vec<bool>> = BTreeMap::new();
    for (task, rewards) in samples {
        let passed = match rewards {
            None => false,
            Some(rewards) => match rewards.values().collect::<Vec<_>>()[..] {
                [reward] if *reward == 0.0 || *reward == 1.0 => *reward == 1.0,
                _ => return BTreeMap::new(),
            },
        };
        of_task.entry(task).or_default().push(passed);
    }
    // Each task needs at least `k` samples.
    let fewest = of_task.values().map(Vec::len).min().unwrap_or(0);
    let mean = |k: usize| {
        let of_one =
            |passed: &Vec<bool>| chance(passed.len(), passed.iter().filter(|passed| **passed).count(), k);
        of_task.values().map(of_one).sum::<f64>() / of_task.len() as f64
    };
    ks(fewest).into_iter().map(|k| (k, mean(k))).collect()
}

/// Returns the values of `k` that Harbor uses: powers of two, and multiples of five.
fn ks(most: usize) -> BTreeSet<usize> {
    let powers = std::iter::successors(Some(2_usize), |k| k.checked_mul(2)).take_while(|k| *k <= most);
    powers.chain((5..=most).step_by(5)).collect()
}

/// Returns the unbiased estimate of pass@k from `samples` samples, `passed` of which passed.
fn chance(samples: usize, passed: usize, k: usize) -> f64 {
    let failed = samples - passed;
    // Every choice of `k` samples contains a passed sample.
    if failed < k {
        return 1.0;
    }
    1.0 - (0..k).map(|at| (failed - at) as f64 / (samples - at) as f64).product::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ks_are_harbors() {
        assert!(ks(1).is_empty());
        assert_eq!(ks(10).into_iter().collect::<Vec<_>>(), [2, 4, 5, 8, 10]);
    }

    #[test]
    fn chances_are_those_of_drawing_without_putting_back() {
        assert!((chance(4, 1, 2) - 0.5).abs() < 1e-12);
        assert!((chance(4, 0, 2)).abs() < 1e-12);
        assert!((chance(4, 3, 2) - 1.0).abs() < 1e-12);
    }
}
