use super::*;
use crate::export::testing::fixture::{forked, straight};

/// An exporter that writes each trial as its name, its group, its reward and its remaining branches.
#[derive(Debug, Default)]
struct Outline;

impl ComparedShape for Outline {
    fn write<W: Write>(
        &mut self,
        trial: &ComparedTrial,
        out: &mut TrialLines<'_, W>,
    ) -> Result<(), ExportError> {
        let row = &trial.rows[0];
        let branches: Vec<_> = trial.rows.iter().map(|row| row.branch_index).collect();
        out.lines.write(&row.trial_id, &(&row.trial_id, trial.reward, trial.ordinal, branches))
    }
}

fn named(name: &str, group: usize, trials: usize, reward: Option<f64>) -> Trial {
    let mut trial = straight();
    trial.rows[0].trial_id = name.to_owned();
    trial.group = Some(GroupPlace { ordinal: group, trials });
    trial.reward = reward;
    if reward.is_none() {
        trial.rows[0].loss_mask.fill(0);
    }
    trial
}

fn exported(trials: impl IntoIterator<Item = Trial>) -> (Vec<String>, Vec<Omission>) {
    let mut out = Vec::new();
    let mut exporter = Box::new(ComparedExporter::<_, Outline>::new(&mut out));
    trials.into_iter().for_each(|trial| exporter.write(trial).unwrap());
    let omissions = exporter.finish().unwrap();
    (String::from_utf8(out).unwrap().lines().map(str::to_owned).collect(), omissions)
}

#[test]
fn groups_come_whole_however_their_trials_come() {
    let trials = [
        named("a0", 0, 2, Some(1.0)),
        named("b0", 1, 3, Some(0.0)),
        named("a1", 0, 2, Some(0.5)),
        named("b1", 1, 3, Some(0.0)),
        Trial { group: None, ..named("alone", 0, 1, Some(0.25)) },
    ];
    let (lines, omissions) = exported(trials);
    let expected = [
        r#"["a0",1.0,0,[0]]"#,
        r#"["a1",0.5,2,[0]]"#,
        r#"["alone",0.25,4,[0]]"#,
        r#"["b0",0.0,1,[0]]"#,
        r#"["b1",0.0,3,[0]]"#,
    ];
    assert_eq!(lines, expected);
    assert_eq!(omissions, []);
}

#[test]
fn a_group_that_never_became_whole_is_written_at_the_end() {
    let failed = Trial { stand_in: Some(1.0), ..named("b", 0, 3, None) };
    let (lines, _) = exported([named("a", 0, 3, Some(1.0)), failed]);
    assert_eq!(lines, [r#"["a",1.0,0,[0]]"#, r#"["b",1.0,1,[0]]"#]);
}

#[test]
fn a_trial_without_a_reward_has_the_stand_in_of_the_plan() {
    let failed = Trial { stand_in: Some(0.75), ..named("b", 0, 3, None) };
    let trials = [named("a", 0, 3, Some(1.0)), failed, named("c", 0, 3, Some(0.5))];
    let (lines, omissions) = exported(trials);
    assert_eq!(lines, [r#"["a",1.0,0,[0]]"#, r#"["b",0.75,1,[0]]"#, r#"["c",0.5,2,[0]]"#]);
    let what = "trials: that they have no reward (masked, with a stand-in for the reward)".to_owned();
    assert_eq!(omissions, [Omission { what, count: 1 }]);
}

/// An estimator that divides by the number of the group's trained tokens would produce NaN.
#[test]
fn a_group_in_which_nothing_is_trained_is_left_out() {
    let (lines, omissions) = exported([named("a", 0, 2, None), named("b", 0, 2, None)]);
    let what = "trials: of groups in which nothing is trained".to_owned();
    assert_eq!((lines, omissions.last()), (vec![], Some(&Omission { what, count: 2 })));
}

/// They come first from the plan, and a format may need a real prompt of the group for them.
#[test]
fn trials_that_only_fill_a_group_come_last() {
    let mut filler = named("filler", 0, 2, None);
    filler.rows[0].calls.clear();
    let (lines, _) = exported([filler, named("real", 0, 2, Some(1.0))]);
    assert_eq!(lines, [r#"["real",1.0,1,[0]]"#, r#"["filler",0.0,0,[0]]"#]);
}

#[test]
fn branches_that_train_nothing_are_left_out_all_but_one() {
    let masked = |branches: &[usize]| {
        let mut trial = Trial { group: None, ..forked() };
        branches.iter().for_each(|&branch| trial.rows[branch].loss_mask.fill(0));
        exported([trial])
    };
    let what = "branches: nothing on them is trained".to_owned();
    let omission = Omission { what, count: 1 };
    assert_eq!(masked(&[]), (vec![r#"["forked",0.0,0,[0,1]]"#.to_owned()], vec![]));
    assert_eq!(masked(&[1]), (vec![r#"["forked",0.0,0,[0]]"#.to_owned()], vec![omission.clone()]));
    assert_eq!(masked(&[0]), (vec![r#"["forked",0.0,0,[1]]"#.to_owned()], vec![omission.clone()]));
    let what = "trials: of groups in which nothing is trained".to_owned();
    assert_eq!(masked(&[0, 1]), (vec![], vec![omission, Omission { what, count: 1 }]));
}

#[test]
fn what_waits_for_its_group_waits_without_the_texts_of_its_calls() {
    let mut rows = straight().rows;
    rows[0].calls[1].messages = Some("[]".repeat(1000));
    rows[0].calls[1].tools = Some("[]".to_owned());
    let calls = held(rows).remove(0).calls;
    assert!(
        calls.iter().all(|call| call.messages.is_none() && call.tools.is_none() && call.sampling.is_empty())
    );
    assert_eq!(calls.len(), 2);
}

#[test]
fn numbers_that_json_cannot_hold_are_refused() {
    let refusal =
        |trial: Trial| ComparedExporter::<_, Outline>::new(Vec::new()).write(trial).unwrap_err().to_string();
    let told = refusal(Trial { reward: Some(f64::NAN), ..straight() });
    assert_eq!(told, "trial straight, branch 0: its reward is NaN");
    let told = refusal(Trial { advantage: Some(f64::INFINITY), ..straight() });
    assert_eq!(told, "trial straight, branch 0: its advantage is inf");
    let mut named = straight();
    named.rows[0].rewards.insert("speed".into(), f64::NEG_INFINITY);
    assert_eq!(refusal(named), "trial straight, branch 0: its rewards[\"speed\"] is -inf");
    let told = refusal(Trial { reward: None, ..straight() });
    assert_eq!(told, "trial straight, branch 0: it has no reward, and yet tokens that are trained");
}
