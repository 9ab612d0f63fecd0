//! Reading streams by position and by partition.

use annals_core::bson::oid::ObjectId;
use annals_core::bson::spec::BinarySubtype;
use annals_core::bson::{Binary, Bson, DateTime, doc};
use annals_core::{
    Code, Data, Included, NewCommit, NewEvent, Partitions, ReadError, StreamInfo, StreamPage, StreamQuery,
    StreamsQuery, Verdicts, limits,
};

use crate::sample::{commit, event_of_bytes, n_of};
use crate::streams::StreamsModel;
use crate::streams::sample::{NONE, Opened, append, info, open, open_with, pages, read, verdicts, whole};
use crate::{Subject, WithOther};

fn from(position: u64) -> StreamQuery {
    StreamQuery { from: position, ..StreamQuery::new("s") }
}

fn one(partition: &str) -> StreamQuery {
    StreamQuery { partitions: Partitions::One(partition.into()), ..StreamQuery::new("s") }
}

/// Returns a stream "s" of 100 entries, the events of even numbers, in partitions "0" to "4" in turn.
async fn stream_of_100(subject: &dyn Subject) -> Opened {
    let opened = open_with(subject, 200).await;
    for from in (0..200).step_by(8) {
        let included: Vec<_> = (from..from + 8).step_by(2).map(|n| (n, (n / 2 % 5).to_string())).collect();
        let run = verdicts("s", from..from + 8, included.iter().map(|(n, partition)| (*n, &**partition)));
        append(&opened.streams, run).await;
    }
    opened
}

/// Like an aggregate without commits, it is empty, and that is not an error.
pub async fn a_stream_that_nobody_appended_to_is_empty(subject: &dyn Subject) {
    let opened = open_with(subject, 3).await;
    append(&opened.streams, verdicts("t", 0..3, [1u64])).await;
    assert_eq!(read(&opened.streams, from(0)).await, StreamPage { entries: vec![], next: 0, head: 0 });
    assert_eq!(read(&opened.streams, one("p")).await, StreamPage { entries: vec![], next: 0, head: 0 });
    let events = opened.streams.read_events(from(7)).await.expect("a page");
    assert_eq!((events.events, events.next, events.head), (vec![], 0, 0));
    assert_eq!(info(&opened.streams, "s").await, StreamInfo::unknown("s"));
}

/// Read with events, each entry has its own event, with everything that was committed.
pub async fn events_come_with_their_entries(subject: &dyn Subject) {
    let opened = stream_of_100(subject).await;
    let all = crate::sample::whole_log(&opened.log).await;
    for query in [from(0), from(37), one("3"), StreamQuery { limit: 7, ..one("0") }] {
        let entries = read(&opened.streams, query.clone()).await;
        let events = opened.streams.read_events(query).await.expect("a page");
        assert_eq!((events.next, events.head), (entries.next, entries.head));
        assert_eq!(events.events.len(), entries.entries.len());
        for (found, entry) in events.events.iter().zip(entries.entries) {
            assert_eq!((found.position, &found.partition), (entry.position, &entry.partition));
            assert_eq!(found.event, all[entry.sequence_number as usize]);
            assert_eq!(n_of(&found.event), entry.sequence_number);
        }
    }
}

/// Dates, int32, decimals, binary and other types that JSON lacks are as in the log.
pub async fn events_of_a_stream_keep_the_types_of_their_data(subject: &dyn Subject) {
    let opened = open(subject).await;
    let decimal = "12345678901234567890.10".parse().expect("a decimal");
    let typed = doc! {
        "date": DateTime::from_millis(1_772_366_400_007), "int32": 7_i32, "int64": 7_i64, "double": 7.0,
        "decimal": Bson::Decimal128(decimal), "id": ObjectId::from_bytes([7; 12]), "nan": f64::NAN,
        "binary": Binary { subtype: BinarySubtype::Generic, bytes: vec![0, 1, 255] },
        "uuid": Binary { subtype: BinarySubtype::Uuid, bytes: vec![9; 16] },
        "inside": { "list": [1_i32, DateTime::from_millis(1), { "$date": "literal" }] },
    };
    let data = Data::from_document(&typed).expect("a document");
    let two = NewCommit::new("order", "a").event(NewEvent::new("typed", data.clone())).event(NewEvent {
        tags: vec!["t".into()],
        public: true,
        ..NewEvent::new("typed", data.clone())
    });
    commit(&opened.log, two).await;
    let included = [(0, "p"), (1, "日本")];
    append(&opened.streams, verdicts("s", 0..2, included)).await;
    let found = opened.streams.read_events(from(0)).await.expect("a page");
    assert_eq!((found.events.len(), found.next, found.head), (2, 2, 2));
    let all = crate::sample::whole_log(&opened.log).await;
    for (event, (number, partition)) in found.events.iter().zip(included) {
        assert_eq!(event.event.data.as_bytes(), data.as_bytes(), "byte for byte");
        assert_eq!(event.event, all[number as usize]);
        assert_eq!((event.position, event.partition.as_deref()), (number, Some(partition)));
    }
}

/// A range includes its beginning and not its end, and may be empty.
pub async fn a_range_leaves_out_its_end(subject: &dyn Subject) {
    let opened = stream_of_100(subject).await;
    let range = |from, to| StreamQuery { from, to, ..StreamQuery::new("s") };
    let page = read(&opened.streams, range(20, 23)).await;
    assert_eq!(page.entries.iter().map(|entry| entry.position).collect::<Vec<_>>(), [20, 21, 22]);
    assert_eq!((page.next, page.head), (23, 100));
    let page = read(&opened.streams, range(20, 20)).await;
    assert_eq!((page.entries.len(), page.next), (0, 20));
    let page = read(&opened.streams, StreamQuery { limit: 2, ..range(20, 23) }).await;
    assert_eq!((page.entries.len(), page.next), (2, 22));
    let page = read(&opened.streams, StreamQuery { partitions: Partitions::One("1".into()), ..range(20, 27) }).await;
    assert_eq!(page.entries.iter().map(|entry| entry.position).collect::<Vec<_>>(), [21, 26]);
    assert_eq!(page.next, 27);
    let page = read(&opened.streams, range(98, u64::MAX)).await;
    assert_eq!((page.entries.len(), page.next), (2, 100));
}

/// A `from` past the head is taken as the head.
pub async fn past_the_end_is_the_head(subject: &dyn Subject) {
    let opened = stream_of_100(subject).await;
    for position in [100, 101, 5_000, u64::MAX] {
        for query in [from(position), StreamQuery { from: position, ..one("2") }] {
            let page = read(&opened.streams, query.clone()).await;
            assert_eq!((page.entries.len(), page.next, page.head), (0, 100, 100));
            let events = opened.streams.read_events(query).await.expect("a page");
            assert_eq!((events.events.len(), events.next, events.head), (0, 100, 100));
        }
    }
}

/// Only the end is an empty page, even of a partition that is rare, long gone or has never existed.
pub async fn an_empty_page_is_the_end(subject: &dyn Subject) {
    let opened = open_with(subject, 3_000).await;
    for from in (0..3_000).step_by(500) {
        let partition = |n: u64| if n == 10 || n == 2_600 { "rare" } else { "common" };
        append(&opened.streams, verdicts("s", from..from + 500, (from..from + 500).map(|n| (n, partition(n))))).await;
    }
    for limit in [1, 2, 3, 1_000] {
        let found = pages(&opened.streams, StreamQuery { limit, ..one("rare") }).await;
        assert_eq!(found.iter().map(|entry| entry.position).collect::<Vec<_>>(), [10, 2_600]);
    }
    let page = read(&opened.streams, StreamQuery { from: 2_601, ..one("rare") }).await;
    assert_eq!((page.entries.len(), page.next, page.head), (0, 3_000, 3_000));
    let page = read(&opened.streams, one("never")).await;
    assert_eq!((page.entries.len(), page.next, page.head), (0, 3_000, 3_000));
    assert_eq!(pages(&opened.streams, StreamQuery { limit: 999, ..one("common") }).await.len(), 2_998);
}

/// Resuming from `next` covers every entry once, with every limit.
pub async fn pages_cover_every_entry_once(subject: &dyn Subject) {
    let opened = stream_of_100(subject).await;
    for limit in [1, 2, 3, 7, 99, 100, 101, 1_000] {
        let found = pages(&opened.streams, StreamQuery { limit, ..from(0) }).await;
        assert_eq!(found.iter().map(|entry| entry.position).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
        assert!(found.iter().all(|entry| entry.sequence_number == entry.position * 2));
    }
}

/// A partition's entries come in order, page by page, from anywhere.
pub async fn a_partition_is_read_page_by_page_in_order(subject: &dyn Subject) {
    let opened = stream_of_100(subject).await;
    for limit in [1, 3, 20, 1_000] {
        for start in [0, 1, 50, 97] {
            for partition in 0..5 {
                let query = StreamQuery { limit, from: start, ..one(&partition.to_string()) };
                let found = pages(&opened.streams, query).await;
                let expected: Vec<_> = (start..100).filter(|position| position % 5 == partition).collect();
                assert_eq!(found.iter().map(|entry| entry.position).collect::<Vec<_>>(), expected);
            }
        }
    }
}

/// Partitions are distinguished to the last byte, and no partition is not a partition.
pub async fn a_partition_is_not_the_beginning_of_another(subject: &dyn Subject) {
    let opened = open_with(subject, 5).await;
    let mut all = verdicts("s", 0..5, [(0, "a"), (1, "ab"), (2, "a b"), (4, "A")]);
    all.included.insert(3, Included::new(3));
    append(&opened.streams, all).await;
    for (position, partition) in [(0, "a"), (1, "ab"), (2, "a b"), (4, "A")] {
        let found = pages(&opened.streams, one(partition)).await;
        assert_eq!(found.iter().map(|entry| entry.position).collect::<Vec<_>>(), [position]);
    }
    let without = pages(&opened.streams, StreamQuery { partitions: Partitions::Without, ..from(0) }).await;
    assert_eq!(without.iter().map(|entry| entry.position).collect::<Vec<_>>(), [3]);
}

/// For random streams and queries, the answer equals that of examining every entry.
pub async fn any_query_finds_what_filtering_by_hand_finds(subject: &dyn Subject) {
    let opened = open_with(subject, 3_000).await;
    let mut random = fastrand::Rng::with_seed(7);
    let mut model = StreamsModel::default();
    let partitions = ["a", "b", "c", "rare", "ab", "日本"];
    let any = |random: &mut fastrand::Rng| match random.usize(0..60) {
        0 => Some(partitions[3]),
        1..20 => Some(partitions[0]),
        n if n < 50 => Some(partitions[n % 6]),
        _ => None,
    };
    let (mut judged, streams) = (0, &opened.streams);
    while judged < 3_000 {
        let to = (judged + random.u64(1..400)).min(3_000);
        let odds = random.u8(1..5);
        let included = (judged..to).filter(|_| random.u8(0..5) < odds).collect::<Vec<_>>();
        let included = included
            .into_iter()
            .map(|sequence_number| Included { sequence_number, partition: any(&mut random).map(Into::into) });
        let run = Verdicts { included: included.collect(), ..Verdicts::new("s", judged..to) };
        assert_eq!(streams.append(run.clone()).await, model.append(&run, 3_000));
        judged = to;
        for _ in 0..20 {
            let ends = [random.u64(0..3_100), random.u64(0..3_100)];
            let partitions = match random.u8(0..3) {
                0 => Partitions::All,
                1 => any(&mut random).map_or(Partitions::Without, |name| Partitions::One(name.into())),
                _ => Partitions::One("rare".into()),
            };
            let query = StreamQuery {
                stream: "s".into(),
                from: ends[0].min(ends[1]),
                to: if random.bool() { ends[0].max(ends[1]) } else { u64::MAX },
                limit: random.usize(1..=1_000),
                partitions,
            };
            assert_eq!(pages(streams, query.clone()).await, by_hand(&model, query.clone()), "{query:?}");
        }
    }
    assert_eq!(whole(streams, "s").await.len() as u64, model.stream("s").head);
}

fn by_hand(model: &StreamsModel, query: StreamQuery) -> Vec<annals_core::StreamEntry> {
    model.read(&StreamQuery { limit: usize::MAX, ..query }).entries
}

/// A page with large events ends early, the next one resumes there, and each holds at least one.
pub async fn a_page_of_large_events_ends_early(subject: &dyn Subject) {
    let opened = open(subject).await;
    for n in 0..5 {
        let large = NewCommit::new("order", format!("{n}")).event(event_of_bytes("large", limits::EVENT_BYTES_MAX));
        commit(&opened.log, large).await;
    }
    append(&opened.streams, verdicts("s", 0..5, [0u64, 1, 2, 4])).await;
    let (mut query, mut numbers) = (from(0), Vec::new());
    loop {
        let page = opened.streams.read_events(query.clone()).await.expect("a page");
        assert!(page.events.len() <= limits::PAGE_BYTES_MAX / limits::EVENT_BYTES_MAX + 1, "{}", page.events.len());
        if page.events.is_empty() {
            break;
        }
        numbers.extend(page.events.iter().map(|event| event.event.sequence_number));
        query.from = page.next;
    }
    assert_eq!(numbers, [0, 1, 2, 4]);
}

/// An invalid query is refused, with the path.
pub async fn a_query_that_breaks_a_rule_is_refused(subject: &dyn Subject) {
    let opened = open(subject).await;
    for (query, code, path) in [
        (StreamQuery { limit: 0, ..from(0) }, Code::InvalidQuery, "limit"),
        (StreamQuery { limit: 1_001, ..from(0) }, Code::InvalidQuery, "limit"),
        (StreamQuery { to: 4, ..from(5) }, Code::InvalidRange, "from"),
        (StreamQuery::new("a b"), Code::InvalidName, "stream"),
        (one(""), Code::InvalidId, "partition"),
    ] {
        let refused = |error: ReadError| match error {
            ReadError::Invalid(invalid) => assert_eq!((invalid.code, &*invalid.path), (code, path)),
            other => panic!("{other}"),
        };
        refused(opened.streams.read(query.clone()).await.expect_err("it is refused"));
        refused(opened.streams.read_events(query).await.expect_err("it is refused"));
    }
    let code = |result: Result<u64, ReadError>| result.expect_err("it is refused").code();
    assert_eq!(code(opened.streams.position_of("", 0).await), Code::InvalidName);
    assert_eq!(code(opened.streams.wait_past("", 0).await), Code::InvalidName);
    assert_eq!(code(opened.streams.stream("").await.map(|info| info.head)), Code::InvalidName);
    let listed = opened.streams.list(StreamsQuery { after: None, limit: 0 }).await;
    assert_eq!(code(listed.map(|_| 0)), Code::InvalidQuery);
}

/// A list resumes after a name, whether or not there is such a stream.
pub async fn a_list_goes_on_after_its_cursor(subject: &dyn Subject) {
    let opened = open_with(subject, 2).await;
    for name in ["b", "d", "f"] {
        append(&opened.streams, verdicts(name, 0..1, [0u64])).await;
    }
    let list = async |after: Option<&str>| {
        let query = StreamsQuery { after: after.map(Into::into), ..StreamsQuery::default() };
        let listed = opened.streams.list(query).await.expect("they are listed");
        assert!(listed.iter().all(|info| (info.head, info.progress, info.incarnation_start) == (1, 1, 0)));
        listed.iter().map(|info| info.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(list(None).await, ["b", "d", "f"]);
    assert_eq!(list(Some("")).await, ["b", "d", "f"]);
    assert_eq!(list(Some("b")).await, ["d", "f"]);
    assert_eq!(list(Some("c")).await, ["d", "f"]);
    assert_eq!(list(Some("f")).await, [""; 0]);
    assert_eq!(list(Some("日本")).await, [""; 0]);
}

/// A list is in byte order of names. It keeps its limit, and has only this tenant's streams.
pub async fn a_list_is_ordered_by_bytes_and_keeps_its_limit(subject: &dyn Subject) {
    let subject = &WithOther(subject);
    let opened = open_with(subject, 1).await;
    let mut names = ["s-1", "s-10", "s-2", "S-1", "s.1", "s_1", "s", "s1", "0"];
    for name in names {
        append(&opened.streams, verdicts(name, 0..1, NONE)).await;
    }
    names.sort_unstable();
    let mut listed = Vec::new();
    loop {
        let query = StreamsQuery { after: listed.last().cloned(), limit: 2 };
        let page = opened.streams.list(query).await.expect("they are listed");
        assert!(page.len() <= 2);
        if page.is_empty() {
            break;
        }
        listed.extend(page.into_iter().map(|info| info.name));
    }
    assert_eq!(listed, names);
    let other = opened.store.streams(crate::OTHER_TENANT, annals_core::DEFAULT_SCOPE).expect("it is declared");
    assert_eq!(other.list(StreamsQuery::default()).await, Ok(vec![]));
}
