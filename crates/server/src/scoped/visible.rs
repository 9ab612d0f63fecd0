//! A page of a list, of which a caller may see some entries only.

use annals_core::ByteString;

/// How many entries of the whole list are read at once, at least: a page of one visible entry may have thousands of hidden ones before it.
const READ_MIN: usize = 100;

/// Collects a page of visible entries from pages of the whole list.
///
/// INVARIANT: the cursor of the page is that of its last entry, and it has one only if the caller may see a further entry. The cursor of a
/// hidden entry would tell its name, and a cursor before hidden entries would tell that there are some.
pub(super) struct Visible<T> {
    items: Vec<T>,
    limit: usize,
    /// Where the next page of the whole list begins.
    next: Option<ByteString>,
    /// The cursor of the last item, once the page is full.
    cursor: Option<ByteString>,
    over: bool,
    /// How many entries to read again, so that the last one is the one that fills the page.
    exact: Option<usize>,
}

impl<T> Visible<T> {
    /// An empty page of at most `limit` entries after a cursor.
    pub fn new(after: Option<&str>, limit: usize) -> Self {
        Self {
            items: Vec::new(),
            limit: limit.max(1),
            next: after.map(ByteString::from),
            cursor: None,
            over: false,
            exact: None,
        }
    }

    fn is_full(&self) -> bool {
        self.items.len() >= self.limit
    }

    /// After which cursor, and how many entries to read next; none once the page is complete.
    pub fn wanted(&mut self) -> Option<(Option<&str>, usize)> {
        let limit = self.exact.take().unwrap_or(self.limit.max(READ_MIN));
        (!self.over).then_some((self.next.as_deref(), limit))
    }

    /// Adds what was read: the entries, and the cursor of the page after them.
    pub fn add(&mut self, entries: Vec<T>, next: Option<ByteString>, is_visible: impl Fn(&T) -> bool) {
        let room = self.limit.saturating_sub(self.items.len());
        if room > 0 {
            let mut seen = entries.iter().enumerate().filter(|(_, entry)| is_visible(entry));
            // Only the list itself has the cursor of an entry: that of the last one of a page.
            if let Some((at, _)) = seen.nth(room - 1)
                && at + 1 < entries.len()
            {
                self.exact = Some(at + 1);
                return;
            }
        }
        let mut visible = entries.into_iter().filter(|entry| is_visible(entry));
        self.over = next.is_none();
        if self.is_full() {
            // It is known where the page ends, and not yet whether anything follows.
            match visible.next() {
                Some(_) => self.over = true,
                None if self.over => self.cursor = None,
                None => {}
            }
        } else {
            self.items.extend(visible);
            if self.is_full() {
                self.cursor = next.clone();
            }
        }
        self.next = next;
    }

    /// The entries, and the cursor of the page after them.
    pub fn into_page(self) -> (Vec<T>, Option<ByteString>) {
        (self.items, self.cursor)
    }
}
