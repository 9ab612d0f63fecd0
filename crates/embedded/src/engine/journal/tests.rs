use super::*;
use crate::disk::MemoryDisk;

const DIR: &str = "e";

fn batch(n: u64) -> Vec<Write> {
    let key = |name: &str| format!("{name}-{n}").into_bytes().into();
    let large = vec![n as u8; (n as usize * 397) % 1_500];
    vec![(key("set"), Some(large.into())), (key("removed"), None), (key("empty"), Some([].into()))]
}

/// A journal with batches 1 to `count`, of which those up to `turned` are in the first file and the others in the second.
fn journal(count: u64, turned: u64) -> (Arc<MemoryDisk>, Journal) {
    let disk = Arc::new(MemoryDisk::default());
    let mut journal = Journal::new(disk.clone(), DIR.to_owned(), 0);
    for n in 1..=count {
        journal.append(&batch(n), true).expect("it is appended");
        if n == turned {
            journal.turn();
        }
    }
    (disk, journal)
}

fn bytes_of(disk: &MemoryDisk, name: &str) -> Vec<u8> {
    whole(&*disk.open(&format!("{DIR}/{name}"), Open::Read).expect("it is there")).expect("it is read")
}

fn put(disk: &MemoryDisk, name: &str, bytes: &[u8]) {
    let path = format!("{DIR}/{name}");
    let file = disk.open(&path, Open::Write).or_else(|_| disk.open(&path, Open::Create)).expect("it is opened");
    file.truncate(0).and_then(|()| file.write_at(bytes, 0)).expect("it is written");
}

/// The last batch's number, when the journal holds what was appended behind `moved`; what is wrong otherwise.
fn last(disk: &MemoryDisk, moved: u64) -> Result<u64, String> {
    match read(disk, DIR, moved) {
        Ok((last, writes)) => {
            assert_eq!(writes, (moved + 1..=last).flat_map(batch).collect::<Vec<_>>());
            Ok(last)
        }
        Err(Failure::Damaged(damage)) => Err(damage.to_string()),
        Err(Failure::Refused(error)) => panic!("{error}"),
    }
}

#[test]
fn what_was_appended_is_read_behind_what_was_moved() {
    for (count, turned) in [(0, 0), (1, 0), (9, 0), (9, 4), (9, 9)] {
        let (disk, _) = journal(count, turned);
        for moved in 0..=count {
            assert_eq!(last(&disk, moved), Ok(count), "{count} {turned} {moved}");
        }
    }
}

#[test]
fn batches_of_a_file_that_is_filled_again_mean_nothing() {
    let (disk, mut journal) = journal(20, 12);
    // Everything up to 12 was moved, so the first file is written from its beginning.
    journal.turn();
    for n in 21..=23 {
        journal.append(&batch(n), true).expect("it is appended");
    }
    for moved in 12..=23 {
        assert_eq!(last(&disk, moved), Ok(23));
    }
    assert!(last(&disk, 7).expect_err("8 was overwritten").contains("batch 8 is missing"));
}

#[test]
fn a_last_batch_that_is_not_whole_was_not_answered_for_and_is_passed_over() {
    let (disk, journal) = journal(5, 2);
    let (bytes, end) = (bytes_of(&disk, FILES[1]), journal.offset as usize);
    let start = (0..end).step_by(BLOCK).rfind(|at| Batch::at(&bytes[*at..]).is_some()).expect("a batch");
    let length = Batch::at(&bytes[start..]).expect("a batch").writes.len() + HEADER;
    for cut in start..start + length {
        let torn: Vec<u8> = bytes[..cut].iter().copied().chain(vec![0; bytes.len() - cut]).collect();
        put(&disk, FILES[1], &torn);
        // What was cut off may have been zeros.
        let whole = torn[..start + length] == bytes[..start + length];
        assert_eq!(last(&disk, 0), Ok(if whole { 5 } else { 4 }), "{cut}");
    }
}

#[test]
fn a_changed_byte_of_an_answered_batch_is_damage_as_soon_as_another_is_behind_it() {
    let (disk, _) = journal(6, 3);
    for (name, batches) in [(FILES[0], 3), (FILES[1], 2)] {
        let bytes = bytes_of(&disk, name);
        let mut at = 0;
        for _ in 0..batches {
            let length = HEADER + Batch::at(&bytes[at..]).expect("a batch").writes.len();
            for changed in at..at + length {
                let mut damaged = bytes.clone();
                damaged[changed] ^= 0x20;
                put(&disk, name, &damaged);
                let found = last(&disk, 0).expect_err("it is damage");
                assert!(found.contains("is no batch, but") || found.contains("is missing"), "{changed}: {found}");
            }
            at += length.next_multiple_of(BLOCK);
        }
        put(&disk, name, &bytes);
    }
}

#[test]
fn a_file_that_is_gone_is_damage_while_another_goes_on_from_it() {
    let (disk, _) = journal(6, 3);
    disk.remove(&format!("{DIR}/{}", FILES[0])).expect("it is removed");
    assert!(last(&disk, 0).expect_err("it is damage").contains("batch 1 is missing"));
    assert_eq!(last(&disk, 3), Ok(6));
}
