"""Access control entries by whom they are about, then by resource.

A question looks at what the principal and everybody have on the resource: entries with its very name, those with the
name ``*``, and those whose name is a prefix of it. Prefixes are kept sorted, each with the longest other prefix that it
begins with. Of the prefixes of a name the longest is found from its place in the order, the others by following those
links: what lies between a prefix of a name and the name begins with that prefix, too.
"""

cimport cython

import bisect

from kraftcore.security import acl as _acl

cdef str _EVERYBODY = _acl.EVERYBODY
cdef str _WILDCARD = _acl.WILDCARD
cdef int _PREFIXED = _acl.PatternType.PREFIXED
cdef int _ALLOW = _acl.Permission.ALLOW
cdef int _ALL = _acl.Operation.ALL
cdef long _EVERY = (1 << len(_acl.Operation)) - 1
# By operation, the bit of what else it allows to be allowed that.
cdef dict _IMPLIED = {operation: 1 << implied for operation, implied in _acl.IMPLIED.items()}
cdef int _BITS = 63


@cython.final
@cython.auto_pickle(False)
cdef class Section:
    """What one principal has on one resource name: by host how many of each entry, and what they come to.

    Entries for every host, which most are, are summed up beside the others: they are found without a look-up.
    """

    cdef dict entries
    cdef dict masks
    cdef long denied
    cdef long allowed

    def __cinit__(self):
        self.entries = {}
        self.masks = {}

    cdef int add(self, acl) except -1:
        cdef dict entries = self.entries.setdefault(acl.host, {})
        entries[acl] = entries.get(acl, 0) + 1
        self.sum_up(acl.host, entries)
        return 0

    cdef int remove(self, acl) except -1:
        cdef dict entries = self.entries[acl.host]
        entries[acl] -= 1
        if not entries[acl]:
            del entries[acl]
        self.sum_up(acl.host, entries)
        if not entries:
            del self.entries[acl.host]
            self.masks.pop(acl.host, None)
        return 0

    cdef int sum_up(self, host, dict entries) except -1:
        cdef long denied = 0, allowed = 0, bits
        cdef int operation
        for acl in entries:
            operation = acl.operation
            if operation == _ALL:
                bits = _EVERY
            elif 0 <= operation < _BITS:
                bits = <long>1 << operation
            else:  # of a later Kafka: nobody asks about it
                bits = 0
            if acl.permission_type == _ALLOW:
                allowed |= bits | <long>_IMPLIED.get(operation, 0)
            else:
                denied |= bits
        if host == _WILDCARD:
            self.denied, self.allowed = denied, allowed
        else:
            self.masks[host] = denied, allowed
        return 0


@cython.final
@cython.auto_pickle(False)
cdef class Prefixes:
    """Values by prefix."""

    cdef list names
    cdef dict values
    cdef dict longest_within

    def __cinit__(self):
        self.names = []
        self.values = {}
        self.longest_within = {}

    cdef int add(self, str prefix, value) except -1:
        """A prefix that is not there yet."""
        within = self.longest(prefix)
        self.values[prefix] = value
        self.longest_within[prefix] = within
        bisect.insort(self.names, prefix)
        for longer in self.longer(prefix):
            if self.longest_within[longer] == within:
                self.longest_within[longer] = prefix
        return 0

    cdef int drop(self, str prefix) except -1:
        """There is nothing more with this prefix."""
        del self.values[prefix]
        within = self.longest_within.pop(prefix)
        for longer in self.longer(prefix):
            if self.longest_within[longer] == prefix:
                self.longest_within[longer] = within
        del self.names[bisect.bisect_left(self.names, prefix)]
        return 0

    cdef list longer(self, str prefix):
        cdef Py_ssize_t place = self.place(prefix)
        cdef list found = []
        while place < len(self.names) and (<str>self.names[place]).startswith(prefix):
            found.append(self.names[place])
            place += 1
        return found

    cdef Py_ssize_t place(self, str name) except -1:
        """How many prefixes are not behind a name in the order."""
        cdef Py_ssize_t low = 0, high = len(self.names), middle
        while low < high:
            middle = (low + high) >> 1
            if name < <str>self.names[middle]:
                high = middle
            else:
                low = middle + 1
        return low

    cdef str longest(self, str name):
        """The longest prefix of a name; None if there is none."""
        cdef Py_ssize_t place = self.place(name)
        cdef str prefix = self.names[place - 1] if place else None
        while prefix is not None and not name.startswith(prefix):
            prefix = self.longest_within[prefix]
        return prefix


@cython.final
@cython.auto_pickle(False)
cdef class Holding:
    """What one principal has on all resources of one type."""

    cdef dict literal
    cdef Prefixes prefixed

    def __cinit__(self):
        self.literal = {}
        self.prefixed = Prefixes()

    cdef list sections(self, str name):
        """Those that apply to a resource."""
        cdef list found = []
        cdef str prefix
        section = self.literal.get(name)
        if section is not None:
            found.append(section)
        section = self.literal.get(_WILDCARD)
        if section is not None:
            found.append(section)
        if self.prefixed.names:
            prefix = self.prefixed.longest(name)
            while prefix is not None:
                found.append(self.prefixed.values[prefix])
                prefix = self.prefixed.longest_within[prefix]
        return found

    cdef list every_section(self):
        """Those of all resources."""
        return [*self.literal.values(), *self.prefixed.values.values()]


@cython.final
@cython.auto_pickle(False)
cdef class AclIndex:
    """All entries. Add and remove them as records do."""

    cdef dict holdings
    # How many entries there are of each name of a resource, whoever they are about.
    cdef dict literal
    cdef dict prefixed
    cdef Py_ssize_t count

    def __cinit__(self):
        self.holdings = {}
        self.literal = {}
        self.prefixed = {}

    def __len__(self):
        return self.count

    def add(self, acl):
        """Take an entry over.

        Args:
            acl: a ``kraftcore.metadata.acls.Acl``.
        """
        cdef int resource_type = acl.resource_type
        cdef str name = acl.resource_name
        cdef Prefixes names
        cdef Holding holding = self.holdings.get((resource_type, acl.principal))
        if holding is None:
            holding = self.holdings[resource_type, acl.principal] = Holding()
        if acl.pattern_type == _PREFIXED:
            if name not in holding.prefixed.values:
                holding.prefixed.add(name, Section())
            (<Section>holding.prefixed.values[name]).add(acl)
            names = self.prefixed.get(resource_type)
            if names is None:
                names = self.prefixed[resource_type] = Prefixes()
            if name not in names.values:
                names.add(name, 0)
            names.values[name] += 1
        else:
            if name not in holding.literal:
                holding.literal[name] = Section()
            (<Section>holding.literal[name]).add(acl)
            self.literal[resource_type, name] = self.literal.get((resource_type, name), 0) + 1
        self.count += 1

    def remove(self, acl):
        """Take one such entry away.

        Args:
            acl: a ``kraftcore.metadata.acls.Acl``.

        Raises:
            KeyError: there is none.
        """
        cdef int resource_type = acl.resource_type
        cdef str name = acl.resource_name
        cdef Prefixes names
        cdef Section section
        cdef Holding holding = self.holdings[resource_type, acl.principal]
        if acl.pattern_type == _PREFIXED:
            section = holding.prefixed.values[name]
            section.remove(acl)
            if not section.entries:
                holding.prefixed.drop(name)
            names = self.prefixed[resource_type]
            names.values[name] -= 1
            if not names.values[name]:
                names.drop(name)
        else:
            section = holding.literal[name]
            section.remove(acl)
            if not section.entries:
                del holding.literal[name]
            self.literal[resource_type, name] -= 1
            if not self.literal[resource_type, name]:
                del self.literal[resource_type, name]
        if not holding.literal and not holding.prefixed.names:
            del self.holdings[resource_type, acl.principal]
        self.count -= 1

    def masks(self, int resource_type, str name not None, str principal not None, str host not None):
        """What is denied and what is allowed to somebody on a resource.

        Args:
            resource_type: see ``kraftcore.security.acl.ResourceType``.
            name: of the resource.
            principal: such as ``User:alice``.
            host: the address it comes from, as text.

        Returns:
            Two sums of ``1 << operation``.
        """
        cdef long denied = 0, allowed = 0
        cdef Holding holding
        cdef Section section
        cdef str who
        for who in (principal, _EVERYBODY):
            holding = self.holdings.get((resource_type, who))
            if holding is None:
                continue
            for section in holding.sections(name):
                denied |= section.denied
                allowed |= section.allowed
                if section.masks:
                    masks = section.masks.get(host)
                    if masks is not None:
                        denied |= <long>(<tuple>masks)[0]
                        allowed |= <long>(<tuple>masks)[1]
        return denied, allowed

    def is_about(self, int resource_type, str name not None):
        """Whether any entry, of whomever, is about a resource.

        Args:
            resource_type: see ``kraftcore.security.acl.ResourceType``.
            name: of the resource.
        """
        cdef Prefixes names
        if (resource_type, name) in self.literal or (resource_type, _WILDCARD) in self.literal:
            return True
        names = self.prefixed.get(resource_type)
        return names is not None and names.longest(name) is not None

    def applying(self, int resource_type, str name not None, str principal not None, str host not None):
        """The entries about somebody and a resource, for whatever operations, in no order.

        Args:
            resource_type: see ``kraftcore.security.acl.ResourceType``.
            name: of the resource.
            principal: such as ``User:alice``.
            host: the address it comes from, as text.
        """
        return self.entries(resource_type, name, principal, host)

    def held(self, int resource_type, str principal not None, str host not None):
        """The entries about somebody and any resource of a type, in no order.

        Args:
            resource_type: see ``kraftcore.security.acl.ResourceType``.
            principal: such as ``User:alice``.
            host: the address it comes from, as text.
        """
        return self.entries(resource_type, None, principal, host)

    cdef list entries(self, int resource_type, str name, str principal, str host):
        """Those about somebody and a resource, or about any of its type if the name is None."""
        cdef Holding holding
        cdef Section section
        cdef list found = [], sections
        for who in dict.fromkeys((principal, _EVERYBODY)):
            holding = self.holdings.get((resource_type, who))
            if holding is None:
                continue
            sections = holding.every_section() if name is None else holding.sections(name)
            for section in sections:
                for where in dict.fromkeys((host, _WILDCARD)):
                    found.extend(section.entries.get(where, ()))
        return found
