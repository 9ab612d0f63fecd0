//! Pages of dead letters under a condition that may change from page to page: the names of the handlers that a caller may see. A cursor
//! of the store belongs to its query and is refused with another condition. These cursors encode where the page ended.

use annals_core::bson::DateTime;
use annals_core::dead_letters::{DEAD_LETTERS, DeadLetter, DeadLetterError, LetterPage, LetterQuery};
use annals_core::{ByteString, Code, Condition, Invalid, RecordError, RecordQuery};

use super::TenantDeadLetters;

/// The last letter of a page. Letters are sorted by time of failure and then by id, both descending.
#[derive(Debug, PartialEq)]
struct Last {
    failed_at: i64,
    id: String,
}

impl Last {
    fn of(letter: &DeadLetter) -> Self {
        Self { failed_at: letter.failed_at.timestamp_millis(), id: letter.id.clone() }
    }

    /// Returns the cursor of the next page, in hexadecimal digits whatever the id contains.
    fn write(&self) -> ByteString {
        let text = format!("{}.{}", self.failed_at, self.id);
        let digits: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        digits.into()
    }

    fn read(cursor: &str) -> Result<Self, Invalid> {
        let parts = |text: String| {
            let (failed_at, id) = text.split_once('.')?;
            Some(Self { failed_at: failed_at.parse().ok()?, id: id.to_owned() })
        };
        text_of(cursor).and_then(parts).ok_or_else(|| {
            let message = "is not a cursor of this list; start again without one";
            Invalid::new(Code::InvalidQuery, "cursor", message)
        })
    }

    /// Returns the condition for the letters that follow.
    fn following(&self) -> Condition {
        let failed_at = DateTime::from_millis(self.failed_at);
        // Only the first condition can be used as a range of an index.
        Condition::and([
            Condition::lte("failed_at", failed_at),
            Condition::or([Condition::lt("failed_at", failed_at), Condition::lt("_id", self.id.as_str())]),
        ])
    }
}

fn text_of(digits: &str) -> Option<String> {
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let pairs = digits.as_bytes().chunks(2);
    let bytes: Option<Vec<u8>> =
        pairs.map(|pair| Some(nibble(*pair.first()?)? << 4 | nibble(*pair.get(1)?)?)).collect();
    String::from_utf8(bytes?).ok()
}

impl TenantDeadLetters {
    /// Returns a page of the letters that match a query and a condition. The condition may change from page to page.
    pub(super) async fn list_some(
        &self,
        query: &LetterQuery,
        condition: Condition,
    ) -> Result<LetterPage, DeadLetterError> {
        let mut all = vec![query.condition(), condition];
        if let Some(cursor) = &query.cursor {
            all.push(Last::read(cursor)?.following());
        }
        let asked = RecordQuery::new(DEAD_LETTERS).matching(Condition::and(all));
        let asked = asked.descending("failed_at").limit(query.page_length());
        let (page, next) = match self.letters().find(asked).await {
            Err(RecordError::UnknownCollection(_)) => (Vec::new(), None),
            page => page?,
        };
        let cursor = next.and(page.last()).map(|last| Last::of(&last.value).write());
        let items = page.into_iter().map(|stored| stored.value.into()).collect();
        Ok(LetterPage { items, cursor })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_says_where_its_page_ended() {
        for (failed_at, id) in [(1_700_000_000_000, "handler.a.b.7"), (-1, "partner.é/?.0"), (0, "")] {
            let last = Last { failed_at, id: id.to_owned() };
            let cursor = last.write();
            assert!(cursor.bytes().all(|byte| byte.is_ascii_hexdigit()), "{cursor}");
            assert_eq!(Last::read(&cursor), Ok(last));
        }
    }

    #[test]
    fn any_other_text_is_refused() {
        let without_id: String = "17".bytes().map(|byte| format!("{byte:02x}")).collect();
        for text in ["", "x", "3", "zz", "ff", "é", without_id.as_str()] {
            let refused = Last::read(text).expect_err(text);
            assert_eq!((refused.code, &*refused.path), (Code::InvalidQuery, "cursor"), "{text}");
        }
    }
}
