//! Several processes on one store.

use annals_core::dead_letters::{LetterOrder, LetterStatus};
use annals_core::handlers::PullBody;

use super::acting::fail_keys;
use super::{Lettered, states};
use crate::Subject;
use crate::handlers::opened::Opened;

/// Pulls a few messages and processes them. Returns their sequence numbers.
async fn process(it: &Lettered, wait_ms: u64) -> Vec<u64> {
    let pull = PullBody { max: 3, wait_ms, ..PullBody::default() };
    let deliveries = it.groups.pull("g", pull).await.expect("pulled");
    for delivery in &deliveries {
        it.done("g", delivery).await;
    }
    deliveries.iter().map(|delivery| delivery.event.sequence_number).collect()
}

/// The process that owns the group ends halfway, and the other one hands out the rest.
pub async fn two_processes_hand_out_each_due_letter_once(subject: &dyn Subject) {
    const LETTERS: usize = 20;
    let one = Lettered::of(subject).await;
    let other = Lettered::on(Opened::on(subject.open_beside(&one.it.store).await, one.it.clock.clone()));
    one.define("g", LetterOrder::Wait).await;
    fail_keys(&one, "g", LETTERS).await;
    assert_eq!(states(&one.all().await), [(LetterStatus::Scheduled, 0); LETTERS]);
    one.it.advance(10_000);
    // The owner renews its lease before it answers. The other process, which looks for the first time afterwards, finds it renewed.
    let mut handed_out = process(&one, 0).await;
    while handed_out.len() < LETTERS / 2 {
        let (here, there) = tokio::join!(process(&one, 0), process(&other, 0));
        handed_out.extend(here.into_iter().chain(there));
        crate::between_looks().await;
    }
    one.it.host.drain().await;
    while handed_out.len() < LETTERS {
        tokio::select! {
            processed = process(&other, 50_000) => handed_out.extend(processed),
            never = other.it.let_time_pass_by_writes() => match never {},
        }
    }
    handed_out.sort_unstable();
    assert_eq!(handed_out, (0..LETTERS as u64).collect::<Vec<_>>());
    assert_eq!(states(&other.all().await), [(LetterStatus::Retried, 1); LETTERS]);
}
