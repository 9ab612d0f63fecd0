//! What runs on this machine.

use crate::service::DEADLINE;

/// Something that only the processes of one test have on their command line: seconds for `sleep`, other for each call.
pub fn marker() -> String {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
    let next = NEXT.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    format!("4{:07}.{next:04}", std::process::id())
}

/// The processes that have `marker` as an argument.
pub fn running(marker: &str) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("there is /proc");
    let pids = processes.filter_map(|process| process.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).any(|argument| argument == marker.as_bytes())
    })
    .collect()
}

/// Waits until as many processes have `marker` as an argument.
pub async fn until_running(marker: &str, count: usize) {
    // The system tells nobody of the processes of others, so it is asked again and again.
    let mut again = tokio::time::interval(std::time::Duration::from_millis(10));
    let waited = tokio::time::timeout(DEADLINE, async {
        while running(marker).len() != count {
            again.tick().await;
        }
    });
    assert!(waited.await.is_ok(), "{:?} run, not {count}", running(marker));
}
