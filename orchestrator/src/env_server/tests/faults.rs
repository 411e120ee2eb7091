//! The effects of programs, tests and hosts on an episode.

use std::fs;

use serde_json::json;

use super::harness::Stage;

#[tokio::test]
async fn a_megabyte_of_keystrokes_reaches_a_program_that_reads_and_harms_no_other_environment() {
    let stage = Stage::start().await;
    let env = stage.ready(json!({})).await;
    // The text is split into lines, because a terminal accepts no longer ones.
    let lines = "x".repeat(99) + "\n";
    env.keys("stty -echo; cat > got; wc -c < got; stty echo\n", 0.2).await;
    env.keys(&lines.repeat(10_000), 0.0).await;
    env.type_and_see("C-d", &["1000000"]).await;

    env.keys("stty raw -echo; sleep 1000\n", 0.2).await;
    env.keys(&lines.repeat(10_000), 0.1).await;
    let other = stage.ready(json!({})).await;
    other.type_and_see("echo fine$((1+1))\n", &["fine2"]).await;
}

#[tokio::test]
async fn control_characters_go_to_the_program_as_they_are() {
    let stage = Stage::start().await;
    let env = stage.ready(json!({})).await;
    env.keys("stty raw -echo; dd bs=1 count=6 2>/dev/null | od -An -tx1; stty sane\n", 0.2).await;
    env.type_and_see("\u{1}\u{1b}\u{7f}\u{0}\r\u{4}", &["01 1b 7f 00 0d 04"]).await;
}

#[tokio::test]
async fn a_shell_that_ends_ends_the_episode_which_is_judged() {
    let stage = Stage::start().await;
    let env = stage.ready(json!({})).await;
    let reply = env.keys("touch done; exit\n", 20.0).await;
    assert_eq!((&reply["done"], &reply["reward"]), (&json!(true), &json!(1.0)), "{reply}");
    assert_eq!(
        (&reply["info"]["terminal_closed"], &reply["info"]["terminated"]),
        (&json!(true), &json!(true))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_screen_that_never_settles_and_output_without_end_are_seen_in_part_and_interrupted() {
    let stage = Stage::start().await;
    let env = stage.ready(json!({})).await;
    let busy = env.keys("while :; do printf '\\rat %s' \"$i\"; i=$((i+1)); done\n", 0.3).await;
    assert!(busy["observation"].as_str().unwrap().contains("at "), "{busy}");
    env.type_and_see("C-c", &["$"]).await;
    let flood = env.keys("yes\n", 0.5).await;
    let seen = flood["observation"].as_str().unwrap();
    assert!(seen.len() < 11_000 && seen.contains("bytes of output left out"), "{} bytes", seen.len());
    env.keys("C-c", 1.0).await;
    env.type_and_see("echo still$((1+1))\n", &["still2"]).await;
}

#[tokio::test]
async fn an_environment_that_vanished_is_an_error_and_reset_makes_another() {
    let stage = Stage::start().await;
    let env = stage.ready(json!({})).await;
    let workdir = env.workdir().await;
    fs::remove_dir_all(workdir.parent().unwrap()).unwrap();
    assert_eq!(env.step(json!({"keystrokes": "exit\n", "duration": 20})).await.error(), (410, "vanished"));
    let again = env.step(json!("x")).await;
    assert_eq!(again.error(), (410, "vanished"));
    assert!(again.message().contains("Reset makes a new one"), "{again:?}");
    env.reset().await.ok();
    env.type_and_see("echo back$((1+1))\n", &["back2"]).await;
}

#[tokio::test]
async fn a_reward_that_there_is_not_is_never_made_up_silently() {
    let stage = Stage::start().await;
    for (name, tests, cause) in [
        ("none", "#!/bin/sh\nexit 1\n", "RewardFileNotFoundError"),
        ("nan", "#!/bin/sh\necho nan > /logs/verifier/reward.txt\n", "VerifierOutputParseError"),
        (
            "two",
            "#!/bin/sh\necho '{\"a\": 1, \"b\": 2}' > /logs/verifier/reward.json\n",
            "NoSingleRewardError",
        ),
    ] {
        let env = stage.create(&stage.task(name, &[("tests/test.sh", tests)]), json!({})).await;
        env.reset().await.ok();
        let reply = env.complete().await;
        let info = &reply["info"];
        assert_eq!((&reply["done"], &reply["reward"]), (&json!(true), &json!(0.0)), "{reply}");
        assert_eq!(
            (&info["reward_valid"], &info["failure_cause"]),
            (&json!(false), &json!(cause)),
            "{reply}"
        );
        assert!(info["failure"].is_string(), "{reply}");
    }
}

#[tokio::test]
async fn the_tests_may_take_only_their_time() {
    let stage = Stage::start().await;
    let config =
        "[environment]\ndocker_image = \"none\"\nworkdir = \"/app\"\n[verifier]\ntimeout_sec = 0.5\n";
    let files = [("task.toml", config), ("tests/test.sh", "#!/bin/sh\nsleep 1000\n")];
    let env = stage.create(&stage.task("slow", &files), json!({})).await;
    env.reset().await.ok();
    assert_eq!(env.complete().await["info"]["failure_cause"], json!("VerifierTimeoutError"));
}

#[tokio::test]
async fn what_the_task_wants_before_its_tests_is_run_and_its_own_verifier_environment_is_used() {
    let stage = Stage::start().await;
    let config = "artifacts = [\"/app/work\"]\n[environment]\ndocker_image = \"none\"\nworkdir = \"/app\"\n\
                  [verifier]\nenvironment_mode = \"separate\"\n[[verifier.collect]]\ncommand = \"cp done work\"\n";
    let tests = "#!/bin/sh\n[ ! -f /app/done ] && [ \"$(cat /app/work)\" = yes ] && echo 1 > /logs/verifier/reward.txt\n";
    let files = [("task.toml", config), ("tests/test.sh", tests)];
    let env = stage.create(&stage.task("apart", &files), json!({})).await;
    env.reset().await.ok();
    env.keys("echo yes > done\n", 0.2).await;
    let judged = env.complete().await;
    assert_eq!(judged["reward"], json!(1.0), "{judged}");
}

#[tokio::test]
async fn an_environment_that_cannot_be_started_fails_with_its_cause_and_may_be_mended() {
    let stage = Stage::start().await;
    let check = |command: &str| {
        format!(
            "[environment]\ndocker_image = \"none\"\nworkdir = \"/app\"\n[environment.healthcheck]\n\
             command = \"{command}\"\nretries = 1\ninterval_sec = 0.1\n"
        )
    };
    let task = stage.task("sick", &[("task.toml", &check("echo no engine oil; exit 3"))]);
    let env = stage.create(&task, json!({})).await;
    let failed = env.reset().await;
    assert_eq!(failed.error(), (500, "environment_failed"));
    assert!(failed.message().contains("no engine oil"), "{failed:?}");
    assert_eq!(env.step(json!("x")).await.error(), (409, "not_reset"));
}
