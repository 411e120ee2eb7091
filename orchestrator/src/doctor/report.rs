//! The findings of an examination, as a table or as JSON.

use std::fmt;

use serde::Serialize;

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing needs to change.
    Ok,
    /// Jobs run, and something works worse than it could.
    Degraded,
    /// Nothing or not everything of a job can be trained.
    Broken,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The name of the check.
    pub check: &'static str,
    /// The result.
    pub verdict: Verdict,
    /// The facts, in words.
    pub found: String,
    /// What to change, and on which side. `None` for [`Verdict::Ok`].
    pub remedy: Option<String>,
}

/// The findings of an examination.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The URL of the server.
    pub upstream: String,
    /// The model of the calls. `None` if no call was made.
    pub model: Option<String>,
    /// What each check found, in the order of the checks.
    pub findings: Vec<Finding>,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Broken => "broken",
        }
    }
}

impl Report {
    /// Returns the worst result.
    pub fn worst(&self) -> Verdict {
        self.findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok)
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }
}

/// The table.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = self.model.as_deref().unwrap_or("none");
        writeln!(f, "upstream {}, model {model}", self.upstream)?;
        let width = self.findings.iter().map(|finding| finding.check.len()).max().unwrap_or_default();
        for Finding { check, verdict, found, remedy } in &self.findings {
            writeln!(f, "{:8}  {check:width$}  {found}", verdict.as_str())?;
            if let Some(remedy) = remedy {
                writeln!(f, "{:8}  {:width$}  → {remedy}", "", "")?;
            }
        }
        let [broken, degraded, ok] =
            [Verdict::Broken, Verdict::Degraded, Verdict::Ok].map(|of| self.count(of));
        write!(f, "{broken} broken, {degraded} degraded, {ok} ok")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_stands_below_its_finding() {
        let finding = |check, verdict, remedy: Option<&str>| Finding {
            check,
            verdict,
            found: "found".to_owned(),
            remedy: remedy.map(str::to_owned),
        };
        let report = Report {
            upstream: "http://h:8000".to_owned(),
            model: Some("m".to_owned()),
            findings: vec![
                finding("a", Verdict::Ok, None),
                finding("long name", Verdict::Broken, Some("do this")),
            ],
        };
        assert_eq!(report.worst(), Verdict::Broken);
        let text = "upstream http://h:8000, model m\n\
                    ok        a          found\n\
                    broken    long name  found\n                     → do this\n\
                    1 broken, 0 degraded, 1 ok";
        assert_eq!(report.to_string(), text);
    }
}
