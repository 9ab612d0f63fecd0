//! Pages of a list of which a caller may see only some entries.

use annals_core::ByteString;

/// The minimum number of entries of the full list to read at once: thousands of hidden entries may precede a visible one.
const READ_MIN: usize = 100;

/// A page of visible entries that is collected from pages of the full list.
///
/// INVARIANT: the cursor of the page is that of its last entry, and it exists only if the caller may see a further entry. The cursor of a
/// hidden entry would reveal its name, and a cursor before hidden entries would reveal that they exist.
pub(super) struct Visible<T> {
    items: Vec<T>,
    limit: usize,
    /// The cursor at which the next page of the full list begins.
    next: Option<ByteString>,
    /// The cursor of the last item, once the page is full.
    cursor: Option<ByteString>,
    over: bool,
    /// How many entries to read again, so that the page ends exactly with the entry that fills it.
    exact: Option<usize>,
}

impl<T> Visible<T> {
    /// Creates an empty page of at most `limit` entries after a cursor.
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

    /// Returns the cursor and the number of entries to read next, or `None` once the page is complete.
    pub fn wanted(&mut self) -> Option<(Option<&str>, usize)> {
        let limit = self.exact.take().unwrap_or(self.limit.max(READ_MIN));
        (!self.over).then_some((self.next.as_deref(), limit))
    }

    /// Adds a page that was read: its entries, and the cursor that follows them.
    pub fn add(&mut self, entries: Vec<T>, next: Option<ByteString>, is_visible: impl Fn(&T) -> bool) {
        let room = self.limit.saturating_sub(self.items.len());
        if room > 0 {
            let mut seen = entries.iter().enumerate().filter(|(_, entry)| is_visible(entry));
            // Only the list itself can supply the cursor of an entry, and only for the last entry of a page.
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
            // The page is full, but it is not known yet whether another visible entry follows.
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

    /// Returns the entries and the cursor of the next page.
    pub fn into_page(self) -> (Vec<T>, Option<ByteString>) {
        (self.items, self.cursor)
    }
}
