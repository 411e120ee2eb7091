//! A bounded list of problems of one kind.

/// The first problems of a kind, and the number of the others.
#[derive(Debug)]
pub(super) struct FirstProblems {
    /// The maximum number that is listed.
    most: usize,
    listed: Vec<String>,
    further: usize,
}

impl FirstProblems {
    /// Returns an empty list of at most `most` problems.
    pub(super) fn at_most(most: usize) -> Self {
        Self { most, listed: Vec::new(), further: 0 }
    }

    /// Adds a problem. `describe` runs only if the problem is listed.
    pub(super) fn add(&mut self, describe: impl FnOnce() -> String) {
        if self.listed.len() < self.most {
            self.listed.push(describe());
        } else {
            self.further += 1;
        }
    }

    /// Returns the problems. If there are others, the last one is `describe` of their number.
    pub(super) fn into_lines(mut self, describe: impl FnOnce(usize) -> String) -> Vec<String> {
        if self.further > 0 {
            self.listed.push(describe(self.further));
        }
        self.listed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_beyond_the_bound_are_counted() {
        let lines = |count: usize| {
            let mut problems = FirstProblems::at_most(2);
            (0..count).for_each(|number| problems.add(|| number.to_string()));
            problems.into_lines(|further| format!("{further} further"))
        };
        assert_eq!(lines(2), ["0", "1"]);
        assert_eq!(lines(5), ["0", "1", "3 further"]);
    }
}
