//! Followers of the log and of streams, as every interface serves them: pages of events, and a sign of life while there are none.

use std::time::Duration;

use annals_core::{Filter, Follower, Identity, ReadError, RecordedEvent, SequenceNumber, StreamEvent, StreamFollower};
use annals_system::sleep;

use crate::metrics::Counted;
use crate::options::Stop;
use crate::problem::Problem;
use crate::room::Room;
use crate::source::Source;
use crate::state::Server;
use crate::unread::HeldBytes;

/// What is followed.
pub(crate) trait Followed: Send + 'static {
    /// An event, in the form in which a page has it.
    type Event: Send + 'static;

    /// Waits for the next events. Cancelling loses nothing.
    fn page(&mut self) -> impl Future<Output = Result<Vec<Self::Event>, ReadError>> + Send;

    /// Goes back to the first event of the last page, so that the next page begins with it again.
    fn go_back_to(&mut self, first: &Self::Event);

    /// Returns where a follower resumes that has got everything so far.
    fn position(&self) -> u64;

    /// Returns the bytes that an event takes on a page.
    fn data_bytes(event: &Self::Event) -> usize;
}

impl Followed for Follower {
    type Event = RecordedEvent;

    fn page(&mut self) -> impl Future<Output = Result<Vec<RecordedEvent>, ReadError>> + Send {
        self.next_page()
    }

    fn go_back_to(&mut self, first: &RecordedEvent) {
        Self::go_back_to(self, first.sequence_number);
    }

    fn position(&self) -> u64 {
        Self::position(self)
    }

    fn data_bytes(event: &RecordedEvent) -> usize {
        event.page_bytes()
    }
}

impl Followed for StreamFollower {
    type Event = StreamEvent;

    fn page(&mut self) -> impl Future<Output = Result<Vec<StreamEvent>, ReadError>> + Send {
        self.next_page()
    }

    fn go_back_to(&mut self, first: &StreamEvent) {
        Self::go_back_to(self, first.position);
    }

    fn position(&self) -> u64 {
        Self::position(self)
    }

    fn data_bytes(event: &StreamEvent) -> usize {
        event.event.page_bytes()
    }
}

/// A follower of a client. It counts among the followers of the server, and its page among the unread bytes.
pub(crate) struct Following<F: Followed> {
    pub followed: F,
    /// The rest of the page that was read last.
    page: std::vec::IntoIter<F::Event>,
    /// The guard that counts the page's bytes as unread.
    held: Option<HeldBytes>,
    room: Room,
    quiet_max: Duration,
    stop: Stop,
    _counted: Counted,
}

/// What a follower finds next.
pub(crate) enum Step {
    /// There are events.
    Events,
    /// There have been none for a while.
    Quiet,
    /// The server stops.
    Stopped,
    /// The log or the stream cannot be read.
    Failed(ReadError),
}

impl<F: Followed> Following<F> {
    /// Begins to follow, unless the server has too many followers.
    pub fn new(server: &Server, followed: F) -> Result<Self, Problem> {
        Ok(Self {
            followed,
            page: Vec::new().into_iter(),
            held: None,
            room: Room::of(&server.options),
            quiet_max: server.options.comment_interval,
            stop: server.options.stop.clone(),
            _counted: server.follower()?,
        })
    }

    /// Waits until there are events, or until none have come for a while. Cancelling loses nothing.
    pub async fn step(&mut self) -> Step {
        if self.stop.is_stopped() {
            return Step::Stopped;
        }
        if !self.page.as_slice().is_empty() {
            return Step::Events;
        }
        tokio::select! {
            biased;
            () = self.stop.stopped() => Step::Stopped,
            page = page(&self.room, &mut self.followed) => match page {
                Ok((events, held)) => {
                    self.held = Some(held);
                    self.page = events.into_iter();
                    Step::Events
                }
                Err(error) => Step::Failed(error),
            },
            () = sleep(self.quiet_max) => Step::Quiet,
        }
    }

    /// Returns the rest of the page.
    pub fn page(&self) -> &[F::Event] {
        self.page.as_slice()
    }

    /// Drops the next events of the page as long as this says so.
    pub fn skip_while(&mut self, skips: impl Fn(&F::Event) -> bool) {
        while self.page.as_slice().first().is_some_and(&skips) {
            self.page.next();
        }
    }

    /// Returns the next event of the page, if it has one.
    pub fn next_event(&mut self) -> Option<F::Event> {
        self.page.next()
    }

    /// Gives up the memory of a page that was handed out: while it waits, a follower keeps neither events nor their memory.
    pub fn rest(&mut self) {
        if self.page.as_slice().is_empty() {
            self.page = Vec::new().into_iter();
            self.held = None;
        }
    }

    /// Returns where to resume after the pages so far.
    pub fn position(&self) -> u64 {
        self.followed.position()
    }
}

/// Waits for the next page of a follower, and counts its bytes. It can be cancelled without loss.
async fn page<F: Followed>(room: &Room, followed: &mut F) -> Result<(Vec<F::Event>, HeldBytes), ReadError> {
    let bytes = |events: &[F::Event]| events.iter().map(F::data_bytes).sum::<usize>();
    room.open().await;
    let events = followed.page().await?;
    let most = bytes(&events);
    if let Some(held) = room.hold_below(most) {
        return Ok((events, held));
    }
    // A commit wakes all followers at once, and their pages do not fit together. So they read them again as there is room. No follower
    // waits for the turn of another one, whose connection may not ask it for anything.
    if let Some(first) = events.first() {
        followed.go_back_to(first);
    }
    drop(events);
    let reserved = room.reserve(most).await;
    let events = followed.page().await?;
    // It may have become longer.
    let held = room.hold(bytes(&events));
    drop(reserved);
    Ok((events, held))
}

impl Following<Follower> {
    /// Follows the log of a source.
    pub fn of_log(server: &Server, source: &Source, from: SequenceNumber, wanted: Filter) -> Result<Self, Problem> {
        Self::new(server, log_follower(source, from, wanted))
    }
}

/// The most events that a follower reads at once. It keeps those that its client has not taken. A commit with more is read several times.
const PAGE: usize = 256;

/// Returns a follower of the log of a source.
pub(crate) fn log_follower(source: &Source, from: SequenceNumber, wanted: Filter) -> Follower {
    Follower::new(source.log.clone(), from, wanted).in_pages_of(PAGE)
}

/// An event that the client has seen: its number, and the incarnation from which the client received it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub number: SequenceNumber,
    pub incarnation: u32,
}

impl Position {
    /// Returns the sequence number at which to resume, and whether the client must be told that it is not the next number.
    ///
    /// Up to the number at which an incarnation starts, its log equals that of the previous incarnation. What another incarnation stored
    /// from there on is not in this log. Nor is an event past the head, which only another store can have delivered.
    pub fn resume(self, identity: &Identity, head: SequenceNumber) -> (SequenceNumber, bool) {
        let after = self.number.saturating_add(1);
        let other = self.incarnation != identity.incarnation;
        let from = if other { after.min(identity.incarnation_start) } else { after }.min(head);
        // Below the fork the incarnations share one log, so this reader has lost nothing. A later incarnation is not an ancestor.
        (from, from != after || self.incarnation > identity.incarnation)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::sync::watch;

    use super::*;
    use crate::options::Options;

    /// A follower of numbers below a head. Each is a page of 100 bytes.
    struct Numbers {
        head: watch::Receiver<u64>,
        next: u64,
    }

    impl Followed for Numbers {
        type Event = u64;

        async fn page(&mut self) -> Result<Vec<u64>, ReadError> {
            let next = self.next;
            self.head.wait_for(|head| *head > next).await.expect("a log");
            self.next += 1;
            Ok(vec![next])
        }

        fn go_back_to(&mut self, first: &u64) {
            self.next = *first;
        }

        fn position(&self) -> u64 {
            self.next
        }

        fn data_bytes(_: &u64) -> usize {
            100
        }
    }

    #[tokio::test]
    async fn pages_that_many_followers_find_at_once_do_not_exceed_the_room_and_none_is_lost() {
        let (log, head) = watch::channel(0);
        let options = Options { answer_bytes_in_flight_max: 150, ..Options::default() };
        let room = Room::of(&options);
        let mut followers: Vec<_> = (0..5).map(|_| Numbers { head: head.clone(), next: 0 }).collect();
        let mut waiting: Vec<_> = followers.iter_mut().map(|follower| Box::pin(super::page(&room, follower))).collect();
        for page in &mut waiting {
            assert!(page.as_mut().now_or_never().is_none(), "the log has no event");
        }
        log.send_replace(1);
        let got: Vec<_> = waiting.iter_mut().filter_map(|page| page.as_mut().now_or_never()).collect();
        // The first one fits, and the second one begins while there is room.
        assert_eq!((got.len(), options.unread.bytes()), (2, 200));
        drop(got);
        // The last one does not depend on the others, which nobody asks for their pages.
        for page in waiting.into_iter().skip(2).rev() {
            let (events, held) = page.await.expect("a page");
            assert_eq!(events, [0]);
            drop(held);
        }
        assert_eq!(options.unread.bytes(), 0);
    }

    fn resumed(number: u64, incarnation: u32, at: Identity, head: u64) -> (u64, bool) {
        Position { number, incarnation }.resume(&at, head)
    }

    #[test]
    fn a_position_below_the_fork_is_resumed_without_a_report() {
        let fork = Identity { store_id: annals_core::Uuid::nil(), incarnation: 1, incarnation_start: 10 };
        assert_eq!(resumed(4, 0, fork, 20), (5, false));
    }

    #[test]
    fn a_position_of_another_incarnation_is_clamped_to_where_this_one_starts_and_reported() {
        let first = Identity { store_id: annals_core::Uuid::nil(), incarnation: 0, incarnation_start: 0 };
        let second = Identity { incarnation: 1, incarnation_start: 10, ..first };
        assert_eq!(resumed(4, 0, first, 20), (5, false));
        assert_eq!(resumed(14, 1, second, 20), (15, false));
        assert_eq!(resumed(14, 0, second, 20), (10, true));
        assert_eq!(resumed(9, 0, second, 20), (10, false));
        assert_eq!(resumed(10, 0, second, 20), (10, true));
        assert_eq!(resumed(4, 2, second, 20), (5, true));
        assert_eq!(resumed(u64::MAX, 0, second, 20), (10, true));
        assert_eq!(resumed(20, 0, first, 20), (20, true));
        assert_eq!(resumed(19, 0, first, 20), (20, false));
    }
}
