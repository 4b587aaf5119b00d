"""Every message and record as data; error codes; feature levels.

====================  ==============================================================================================
``messages``          requests and responses, one module an api
``records``           records of the metadata log
``data``              headers, bodies of control records, and other messages that travel or rest inside others
``schema``            how those classes are written down
``registry``          api keys and record types, and the class of each
``frames``            whole requests and responses, header and body
``metadata``          values of data records in the metadata log
``control``           control records
``json_form``         messages as JSON, as Kafka's tools print them
``error_codes``       numbers in responses
``topics``            names of topics and partitions
``features``          metadata.version and the other feature levels
====================  ==============================================================================================

Nothing is imported before it is needed: the message classes alone are 225.
"""
