//! `rolltap check --recompute`: the vLLM that sampled the tokens finds the captured logprobs, and names what was changed.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use rolltap_rollout::check::recomputation::RecomputedRow;
use rolltap_rollout::row::RolloutRow;
use tempfile::{TempDir, TempPath};

use crate::program::text;

/// Checks these rows of the tiny model of `vllm` with its own logprobs. The bound holds for
/// each token.
pub(crate) fn vllm_finds_its_own_logprobs(rows: &[RolloutRow], vllm: &str, bound_in_nats: f64) {
    let bound = bound_in_nats.to_string();
    // Another test renames the weights of this server at any time.
    let any = ["--recompute-any-version", "--recompute-bound", &bound, "--recompute-mean-bound", &bound];
    let dir = TempDir::new().unwrap();
    let report = dir.path().join("recompute.jsonl");
    let sound = check(rows, vllm, &[&any[..], &["--recompute-report", report.to_str().unwrap()]].concat());
    println!("{}", text(&sound.stdout));
    assert_eq!(sound.status.code(), Some(0), "{sound:?}");
    let comparable = rows.iter().filter(|row| has_free_tokens(row)).count();
    let expected = format!("{comparable} rows recomputed, 0 beyond a bound, 0 refused by the server");
    // A slow run prints its progress before.
    assert!(text(&sound.stderr).lines().any(|line| line == expected), "{sound:?}");

    has_each_compared_token(&report, rows, bound_in_nats);

    let is_free = |row: &&RolloutRow| has_free_tokens(row) && row.calls.iter().all(|span| !span.constrained);
    let row = rows.iter().find(is_free).expect("a row without constrained calls");
    let at = row.loss_mask.iter().rposition(|&bit| bit == 1).unwrap();
    let named = format!("trial {}, branch {}: recomputed: ", row.trial_id, row.branch_index);
    let changed = |change: &dyn Fn(&mut RolloutRow), options: &[&str]| {
        let mut row = row.clone();
        change(&mut row);
        check(&[row], vllm, options)
    };
    let fails_naming = |output: &Output, what: &str| {
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let is_named = said.lines().any(|line| line.starts_with(&named) && line.contains(what));
        assert!(is_named, "{named}{what}: {said}");
    };
    let logprob = changed(&|row| row.logprobs[at] -= 0.5, &any);
    fails_naming(&logprob, &format!("largest 5.00e-1 at token_ids[{at}]: "));
    let prompt = changed(&|row| row.token_ids[at / 2] ^= 1, &any);
    fails_naming(&prompt, " over ");
    let unknown = changed(&|row| row.token_ids[1] = 1_000_000, &any);
    fails_naming(&unknown, "token ids: Token id 1000000 is out of vocabulary");

    let is_refused = |output: &Output, why: &str| {
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(why), "{why}: {output:?}");
    };
    let model =
        changed(&|row| row.calls.iter_mut().for_each(|span| span.model = Some("other".to_owned())), &any);
    is_refused(&model, r#"does not serve model "other" of the rows but "tiny""#);
    let chosen = changed(&|_| {}, &["--recompute-model", "other"]);
    is_refused(&chosen, r#"does not serve model "other" of --recompute-model"#);
    let weights = changed(&|row| relabel(row, "of another step"), &[]);
    is_refused(&weights, r#"the rows are of policy version "of another step", and "#);
}

/// Checks that the report has a line for each row that can be compared, with equal logprobs for its tokens.
fn has_each_compared_token(report: &Path, rows: &[RolloutRow], bound: f64) {
    let text = std::fs::read_to_string(report).unwrap();
    let lines: Vec<_> = text.lines().map(|line| RecomputedRow::parse(line.as_bytes()).unwrap()).collect();
    let of = |line: &RecomputedRow| {
        let is_same =
            |row: &&RolloutRow| (&row.trial_id, row.branch_index) == (&line.trial_id, line.branch_index);
        rows.iter().find(is_same).unwrap()
    };
    assert_eq!(lines.len(), rows.iter().filter(|row| has_free_tokens(row)).count());
    for line in &lines {
        let row = of(line);
        assert!(!line.positions.is_empty() && line.refused.is_none() && line.model == "tiny", "{line:?}");
        for ((position, captured), recomputed) in
            line.positions.iter().zip(&line.captured).zip(&line.recomputed)
        {
            assert_eq!(row.logprobs[*position as usize], *captured);
            assert_eq!(row.loss_mask[*position as usize], 1);
            assert!(
                f64::from((recomputed.unwrap() - captured).abs()) <= bound,
                "{position} of {}",
                row.trial_id
            );
        }
    }
}

/// Whether the row has trained tokens of calls that are not constrained.
fn has_free_tokens(row: &RolloutRow) -> bool {
    let free = row.calls.iter().filter(|span| !span.constrained);
    free.map(|span| &row.loss_mask[span.start as usize..span.end as usize]).any(|mask| mask.contains(&1))
}

/// Makes all tokens those of one policy version with this label.
fn relabel(row: &mut RolloutRow, label: &str) {
    row.version_labels.clear();
    row.version_labels.insert("0".to_owned(), label.to_owned());
    row.token_version.iter_mut().filter(|version| **version >= 0).for_each(|version| *version = 0);
    row.calls.iter_mut().for_each(|span| span.version = 0);
}

fn check(rows: &[RolloutRow], vllm: &str, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rolltap"));
    let file = file(rows);
    command.arg("check").arg(&file).args(["--recompute", vllm]).args(options).output().unwrap()
}

fn file(rows: &[RolloutRow]) -> TempPath {
    let mut file = tempfile::Builder::new().suffix(".jsonl").tempfile().unwrap();
    for row in rows {
        writeln!(file, "{}", serde_json::to_string(row).unwrap()).unwrap();
    }
    file.into_temp_path()
}
