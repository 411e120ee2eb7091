use super::*;

/// The pages of a job with one trial, whose agent left these files.
async fn job_with(files: &[(&str, String)]) -> Pages {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("job");
    let agent = job.join("one").join("agent");
    std::fs::create_dir_all(&agent).unwrap();
    std::fs::write(job.join("config.json"), "{}").unwrap();
    write_jsonl(&job.join("rollouts.jsonl"), &[rollout_row("one", "task", Some(1.0), 3)]);
    for (name, content) in files {
        std::fs::write(agent.join(name), content).unwrap();
    }
    Pages { url: serve(&[job]).await, _dir: dir }
}

/// Returns the trajectory of the terminal agent with a step of each text.
fn trajectory(texts: &[&str]) -> String {
    let steps = texts.iter().enumerate().map(|(index, text)| {
        json!({
            "step_id": index + 1, "timestamp": format!("2026-11-26T00:00:{:02}Z", index % 60), "source": "agent",
            "message": text, "metrics": {"completion_tokens": 3},
            "tool_calls": [{"arguments": {"keystrokes": text}}],
            "observation": {"results": [{"content": text}]},
        })
    });
    json!({"agent": {"name": "terminal"}, "steps": steps.collect::<Vec<_>>()}).to_string()
}

#[tokio::test]
async fn the_screens_of_a_trial_have_their_step_and_its_call() {
    let pages = job_with(&[("trajectory.json", trajectory(&["$ ls", "$ ls\nfile"]))]).await;
    let (_, trial) = pages.page("/jobs/job/trials/one").await;
    assert!(trial.contains("href=\"/jobs/job/trials/one/screens\""), "{trial}");
    let (status, page) = pages.page("/jobs/job/trials/one/screens").await;
    assert_eq!(status, 200, "{page}");
    assert_eq!(page.matches("<section class=\"screen\"").count(), 2, "{page}");
    assert!(page.contains("Screen 2 of 2, after 1 s") && page.contains("$ ls\nfile</pre>"), "{page}");
    assert!(page.contains("branches/0?at=2#t2") && page.contains("call-of-one"), "{page}");
}

#[tokio::test]
async fn hostile_screens_are_text_without_control_characters() {
    // The original sequence would clear the screen.
    let output = HOSTILE.replace("\u{1b}[2J", "\u{1b}[1m");
    let cast = format!("{}\n{}\n", json!({"version": 2}), json!([0.1, "o", output]));
    for files in [
        vec![("trajectory.json", trajectory(&[HOSTILE]))],
        vec![("trajectory.json", trajectory(&[HOSTILE])), ("recording.cast", cast)],
    ] {
        let pages = job_with(&files).await;
        for path in ["screens", "screens/window"] {
            let (_, page) = pages.page(&format!("/jobs/job/trials/one/{path}")).await;
            assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
            assert!(
                !page.contains("<script>alert") && !page.contains("<img") && !page.contains('\u{1b}'),
                "{page}"
            );
        }
    }
}

#[tokio::test]
async fn many_screens_come_in_windows() {
    let long = "x<".repeat(5_000);
    let pages = job_with(&[("trajectory.json", trajectory(&vec![long.as_str(); 30]))]).await;
    let (_, page) = pages.page("/jobs/job/trials/one/screens").await;
    assert!(page.len() < 300_000, "a page has {} bytes", page.len());
    let (_, rest) = page.split_once("data-next=\"").unwrap();
    let (next, _) = rest.split_once('"').unwrap();
    let from = page.matches("<section").count();
    assert!(next.ends_with(&format!("/screens/window?from={from}")), "{next}");
    let (_, window) = pages.page(next).await;
    assert!(window.starts_with(&format!("<section class=\"screen\" data-at=\"{from}\"")), "{window}");
    let (_, beyond) = pages.page("/jobs/job/trials/one/screens/window?from=18446744073709551615").await;
    assert_eq!(beyond, "");
}

#[tokio::test]
async fn a_trial_without_screens_has_no_page_of_them() {
    let pages = job_with(&[]).await;
    let (_, trial) = pages.page("/jobs/job/trials/one").await;
    assert!(!trial.contains("/screens"), "{trial}");
    let (status, page) = pages.page("/jobs/job/trials/one/screens").await;
    assert_eq!(status, 404, "{page}");
    let pages = job_with(&[("recording.cast", "damaged".to_owned())]).await;
    let (status, page) = pages.page("/jobs/job/trials/one/screens").await;
    assert!(status == 200 && page.contains("no header of an asciicast"), "{page}");
}
