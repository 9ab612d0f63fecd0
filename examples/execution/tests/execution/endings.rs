//! Each way a program can end, and what is measured of it.

use annals_example_execution::{COMPLETED, FAILED, REQUESTED, STARTED, TIMEOUT};
use serde_json::json;

use crate::machine::{marker, running, until_running};
use crate::service::{Ended, Service, ended, history, memory};

const SAMPLES: [(&str, &str); 7] = [
    ("5a1e0001-6f0c-4d52-9d3e-2b7f81c4a601", COMPLETED),
    ("5a1e0002-0b7a-4c19-8e55-94d03fe27c02", FAILED),
    ("5a1e0003-c5d8-4f30-a1b6-0e695d184203", TIMEOUT),
    ("5a1e0004-72e9-4ab4-b70d-6c21fa951804", FAILED),
    ("5a1e0005-1f46-4083-93ca-d87b206ef505", COMPLETED),
    ("5a1e0006-e83b-4617-85f2-17a4c90d3b06", COMPLETED),
    ("5a1e0007-94c1-4e6d-ac08-b35e7712d907", COMPLETED),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_sample_ends_as_it_should_and_its_usage_is_measured() {
    let store = memory().await;
    let service = Service::start_with(&store, |settings| settings.submit_samples = true).await;
    let mut ends = Vec::new();
    for (id, expected) in SAMPLES {
        let end = ended(&service.log, id).await;
        assert_eq!(end.event_type, expected, "{id}: {end:?}");
        assert_eq!(history(&service.log, id).await, [REQUESTED, STARTED, expected], "{id}");
        assert_eq!(end.text("execution_id"), id);
        assert!(end.usage("execution_time_wall_seconds") > 0.0005, "{end:?}");
        assert!(end.usage("clk_tck_hertz") >= 100.0, "{end:?}");
        assert!(end.usage("peak_memory_kb") > 500.0, "{end:?}");
        ends.push(end);
    }
    let [success, exit_code, endless, hog, unicode, stderr, shell] = &ends[..] else { panic!("seven samples") };
    assert_eq!(success.text("stdout"), "0 1 1 2 3 5 8 13 21 34 55 89 144 233 377 \n");
    assert_eq!((success.text("stderr"), &success.data["exit_code"]), ("", &json!(0)));
    assert_eq!((&exit_code.data["exit_code"], exit_code.text("error_type")), (&json!(3), "script_error"));
    assert_eq!(exit_code.text("stdout"), "looking for work\n");
    assert_eq!((&endless.data["timeout_seconds"], endless.text("stdout")), (&json!(2), "round and round\n"));
    assert!(endless.usage("execution_time_wall_seconds") >= 2.0, "{endless:?}");
    let cpu = endless.usage("cpu_time_jiffies") / endless.usage("clk_tck_hertz");
    assert!((0.1..=3.0).contains(&cpu), "an endless loop uses the processor: {endless:?}");
    assert_eq!(hog.text("error_type"), "resource_limit");
    assert!(hog.text("reason").contains("128 MiB") && hog.text("stderr").contains("MemoryError"), "{hog:?}");
    let peak_mib = hog.usage("peak_memory_kb") / 1024.0;
    assert!((48.0..=128.0).contains(&peak_mib), "it came close to its limit and not beyond: {peak_mib}");
    assert_eq!(unicode.text("stdout"), "Grüße · Привет · 你好 · こんにちは · שלום · 🦀\n");
    assert_eq!((stderr.text("stdout"), stderr.text("stderr")), ("done\n", "warning: the cake is a lie\n"));
    assert!(shell.text("stdout").starts_with("line 1\nline 2\nline 3\nin execution-"), "{shell:?}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_peak_is_that_of_the_program_and_not_of_the_service() {
    let store = memory().await;
    let ballast = std::hint::black_box(vec![1u8; 96 * 1024 * 1024]);
    let service = Service::start(&store).await;
    let small = service.result_of("python", "import time; time.sleep(0.1)").await;
    assert!((4.0 * 1024.0..48.0 * 1024.0).contains(&small.usage("peak_memory_kb")), "{small:?}");
    let large = service.result_of("python", "x = bytearray(64 * 1024 * 1024)").await;
    assert!((64.0 * 1024.0..112.0 * 1024.0).contains(&large.usage("peak_memory_kb")), "{large:?}");
    drop(ballast);
    service.stop().await;
}

fn assert_failed(end: &Ended, exit_code: i32, error_type: &str, reason: &str) {
    assert_eq!(end.event_type, FAILED, "{end:?}");
    assert_eq!((&end.data["exit_code"], end.text("error_type")), (&json!(exit_code), error_type), "{end:?}");
    assert!(end.text("reason").contains(reason), "{end:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_a_signal_ends_has_failed_with_the_signal_named() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let end = service.result_of("sh", "kill -SEGV $$").await;
    assert_failed(&end, 128 + 11, "script_error", "SIGSEGV");
    let end = service.result_of("sh", "kill -KILL $$").await;
    assert_failed(&end, 128 + 9, "script_error", "SIGKILL");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_writes_too_large_a_file_has_failed_by_its_limit() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let end = service.result_of("sh", "exec dd if=/dev/zero of=large bs=1048576 count=64").await;
    assert_failed(&end, 128 + 25, "resource_limit", "maximum file size");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_output_is_read_to_its_end_and_the_cut_is_shown() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let script =
        "import sys\nfor n in range(100):\n    sys.stdout.write('x' * 100_000)\n    sys.stderr.write('y' * 100_000)\n";
    let end = service.result_of("python", script).await;
    assert_eq!(end.event_type, COMPLETED, "it never waited for a reader");
    for (field, letter) in [("stdout", 'x'), ("stderr", 'y')] {
        let (kept, mark) = end.text(field).split_once('\n').expect("a line behind the kept part");
        assert!(kept.len() == 65_536 && kept.chars().all(|c| c == letter), "{field}: {} bytes", kept.len());
        assert_eq!(mark, "[truncated: 9934464 more bytes were written]");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_flood_ends_with_the_time_limit() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let body = json!({ "language": "sh", "script": "yes", "timeout_seconds": 1 });
    let id = service.submit_with(body).await;
    let end = ended(&service.log, &id).await;
    assert_eq!(end.event_type, TIMEOUT);
    assert!(end.text("stdout").starts_with("y\ny\n") && end.text("stdout").ends_with("more bytes were written]"));
    assert!(end.text("stdout").len() < 66_000);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_leaves_running_neither_holds_up_its_end_nor_survives_it() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let (in_group, own_session) = (marker(), marker());
    let script = format!(
        "sleep {in_group} & setsid sleep {own_session} & while ! grep -qs {own_session} /proc/$!/cmdline; do :; done; echo left"
    );
    let id = service.submit_with(json!({ "language": "sh", "script": script, "timeout_seconds": 60 })).await;
    let end = ended(&service.log, &id).await;
    assert_eq!((end.event_type.as_str(), end.text("stdout")), (COMPLETED, "left\n"), "{end:?}");
    until_running(&in_group, 0).await;
    until_running(&own_session, 0).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_does_not_end_is_killed_with_all_it_started() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let marker = marker();
    let script = format!("trap '' TERM INT HUP; sleep {marker} & setsid sleep {marker} & sleep {marker}");
    let id = service.submit_with(json!({ "language": "sh", "script": script, "timeout_seconds": 4 })).await;
    until_running(&marker, 3).await;
    assert_eq!(ended(&service.log, &id).await.event_type, TIMEOUT);
    until_running(&marker, 0).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_is_not_utf_8_is_kept_with_replacement_characters() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let end = service.result_of("sh", r"printf 'a\377b\000c\n'; printf '\303' >&2").await;
    assert_eq!((end.text("stdout"), end.text("stderr")), ("a\u{fffd}b\0c\n", "\u{fffd}"));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_gets_an_empty_stdin_a_folder_of_its_own_and_nothing_of_the_service_s_environment() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let end = service.result_of("sh", "cat; env | cut -d= -f1 | sort | tr '\\n' ' '; ls; echo kept > file").await;
    assert_eq!(end.event_type, COMPLETED, "{end:?}");
    let names: Vec<_> = end.text("stdout").split_whitespace().collect();
    assert!(names.starts_with(&["ANNALS_EXECUTION", "ANNALS_EXECUTION_SERVICE", "HOME", "LANG"]), "{names:?}");
    assert!(names.iter().all(|name| !name.starts_with("CARGO") && *name != "USER"), "{names:?}");
    assert_eq!(names.last(), Some(&"main.sh"));
    let next = service.result_of("sh", "ls; ls -d ../*").await;
    assert_eq!(next.text("stdout").lines().count(), 2, "the folder of the one before is gone: {next:?}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_programs_run_at_once_than_set_and_the_rest_wait_in_the_log() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let marker = marker();
    let mut ids = Vec::new();
    for _ in 0..3 {
        let body = json!({ "language": "sh", "script": format!("exec sleep {marker}"), "timeout_seconds": 4 });
        ids.push(service.submit_with(body).await);
    }
    until_running(&marker, 2).await;
    assert_eq!(history(&service.log, &ids[2]).await, [REQUESTED]);
    assert_eq!(ended(&service.log, &ids[0]).await.event_type, TIMEOUT);
    until_running(&marker, 1).await;
    assert_eq!(ended(&service.log, &ids[2]).await.event_type, TIMEOUT);
    assert!(running(&marker).is_empty());
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_event_is_a_line_with_its_number_type_execution_and_what_happened() {
    let store = memory().await;
    let mut service = Service::start(&store).await;
    let id = service.submit("sh", "#!/bin/sh\n# says hello\necho hello").await;
    let short = &id[..8];
    assert_eq!(service.line_with("#0 ").await, format!("#0 execution_requested {short}… sh · # says hello"));
    let line = service.line_with("execution_started").await;
    assert!(line.contains(&format!(" execution_started {short}… by executor-")), "{line}");
    let line = service.line_with("execution_completed").await;
    assert!(line.contains(&format!(" execution_completed {short}… exit 0 · ")), "{line}");
    assert!(line.contains(" wall · ") && line.ends_with(" MiB peak"), "{line}");
    service.stop().await;
}
