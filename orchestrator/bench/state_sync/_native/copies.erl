%% SPDX-License-Identifier: Apache-2.0
%% A firewall that keeps its connections in Mnesia, Erlang's database, with a copy in each member.
%%
%%   erl ... -run copies main MEMBERS CONNECTIONS SEED
%%   erl ... -run copies swept MEMBERS CONNECTIONS SEED HELD
%%
%% Many connections are set up at once on the first member. Each has three packets; each packet looks its connection up
%% and writes its next state, in one activity of the database. At level `none` it writes into a table that no other
%% member has, at `full` into one that all have, at `established` the third packet takes it from the first to the
%% second. Packets are looked up by the table's key, or by another attribute, for which Mnesia locks the table.
%%
%% It prints a line for each setting: level, activity, look-up, connections at once, the median of the microseconds of
%% three packets, and how often activities were begun again because of somebody's lock.
%%
%% With `swept` tables hold many open connections besides: all are in one table, at level `none`, or those that opened
%% have a table of their own, at `established`. The table with half-open connections is read again and again, whole and
%% in one activity, as to find those whose time is over, or it is not (`unswept`). The time is the mean of three
%% packets, for a packet that meets such a sweep waits for long.
-module(copies).
-export([main/1, swept/1]).
-record(connection, {key, state, ends}).
-define(PAUSE_MS, 2). % between sweeps
-define(SWEPT_AT_ONCE, 25).

main(Words) ->
    [Members, Connections, Seed] = [list_to_integer(Word) || Word <- Words],
    Nodes = begin_cluster(Members, Seed),
    make_table(own, [node()]),
    make_table(shared, Nodes),
    lists:foreach(fun(Setting) -> measure(Connections, Setting) end, shuffle(settings())),
    halt(0).

swept(Words) ->
    [Members, Connections, Seed, Held] = [list_to_integer(Word) || Word <- Words],
    Nodes = begin_cluster(Members, Seed),
    Settings = [{Level, Activity, Sweeps} || Level <- [none, established], Activity <- [sync_transaction, sync_dirty],
                                             Sweeps <- [swept, unswept]],
    lists:foreach(fun(Setting) -> measure_swept(Nodes, Connections, Held, Setting) end, shuffle(Settings)),
    halt(0).

begin_cluster(Members, Seed) ->
    rand:seed(exsss, Seed),
    Nodes = [list_to_atom("m" ++ integer_to_list(Number) ++ "@127.0.0.1") || Number <- lists:seq(1, Members)],
    lists:foreach(fun wait_for/1, Nodes),
    {_, []} = rpc:multicall(Nodes, mnesia, start, []),
    {ok, _} = mnesia:change_config(extra_db_nodes, tl(Nodes)),
    Nodes.

wait_for(Node) ->
    case net_adm:ping(Node) of
        pong -> ok;
        pang -> timer:sleep(100), wait_for(Node)
    end.

make_table(Name, Nodes) ->
    Attributes = record_info(fields, connection),
    {atomic, ok} = mnesia:create_table(Name, [{ram_copies, Nodes}, {record_name, connection}, {attributes, Attributes}]),
    ok = mnesia:wait_for_tables([Name], 10000).

settings() ->
    [{Level, Activity, LookUp, AtOnce} || Level <- [none, established, full], Activity <- [transaction, sync_transaction],
                                          LookUp <- [key, attribute], AtOnce <- [25, 100]].

shuffle(List) ->
    [Each || {_, Each} <- lists:sort([{rand:uniform(), Each} || Each <- List])].

measure(Connections, {Level, Activity, LookUp, AtOnce}) ->
    {Times, Restarts} = set_up_all(Connections, Level, Activity, LookUp, AtOnce),
    Median = lists:nth((length(Times) + 1) div 2, Times),
    io:format("~s ~s ~s ~b ~b ~b~n", [Level, Activity, LookUp, AtOnce, Median, Restarts]),
    timer:sleep(100). % copies write what is on its way

measure_swept(Nodes, Connections, Held, {Level, Activity, Sweeps}) ->
    hold(Level, Nodes, Held),
    Sweeper = spawn_link(fun() -> sweep(Activity, [own || Sweeps =:= swept]) end),
    timer:sleep(10 * ?PAUSE_MS), % it has begun
    {Times, Restarts} = set_up_all(Connections, Level, Activity, key, ?SWEPT_AT_ONCE),
    Sweeper ! {stop, self()},
    receive stopped -> ok end,
    Mean = lists:sum(Times) div length(Times),
    io:format("~s ~s ~s ~b ~b ~b~n", [Level, Activity, Sweeps, ?SWEPT_AT_ONCE, Mean, Restarts]),
    timer:sleep(100),
    [{atomic, ok} = mnesia:delete_table(Table) || Table <- [own, shared]].

%% Make both tables, of which the one for what is open holds so many connections.
hold(Level, Nodes, Held) ->
    make_table(own, [node()]),
    make_table(shared, [node()]),
    Table = table(Level, established),
    lists:foreach(
        fun(Number) -> ok = mnesia:dirty_write(Table, #connection{key = Number, state = established, ends = Number}) end,
        lists:seq(1, Held)
    ),
    [{atomic, ok} = mnesia:add_table_copy(shared, Node, ram_copies) || Node <- tl(Nodes)].

%% Read tables whole, one after the other, until told to stop.
sweep(Activity, Tables) ->
    receive
        {stop, From} -> From ! stopped
    after ?PAUSE_MS ->
        lists:foreach(fun(Table) -> mnesia:activity(Activity, fun() -> mnesia:foldl(fun count/2, 0, Table) end) end, Tables),
        sweep(Activity, Tables)
    end.

count(#connection{state = established}, Open) -> Open + 1;
count(_, Open) -> Open.

%% Times of so many connections, shortest first, and how often activities were begun again.
set_up_all(Connections, Level, Activity, LookUp, AtOnce) ->
    Before = mnesia:system_info(transaction_restarts),
    Self = self(),
    Each = Connections div AtOnce,
    Work = fun(Worker) ->
        Self ! {done, [set_up(Level, Activity, LookUp, {Worker, Number}) || Number <- lists:seq(1, Each)]}
    end,
    [spawn_link(fun() -> Work(Worker) end) || Worker <- lists:seq(1, AtOnce)],
    Times = lists:sort(lists:append([receive {done, Found} -> Found end || _ <- lists:seq(1, AtOnce)])),
    {Times, mnesia:system_info(transaction_restarts) - Before}.

%% Microseconds of three packets of one connection. It is taken out again, so that tables stay small.
set_up(Level, Activity, LookUp, Key) ->
    Began = erlang:monotonic_time(microsecond),
    [ok = mnesia:activity(Activity, fun() -> step(Level, LookUp, Key, State) end)
     || State <- [syn_sent, syn_received, established]],
    Took = erlang:monotonic_time(microsecond) - Began,
    ok = mnesia:activity(Activity, fun() -> mnesia:delete({table(Level, established), Key}) end),
    Took.

step(Level, LookUp, Key, State) ->
    look_up(LookUp, tables(Level), Key),
    To = table(Level, State),
    case State =:= established andalso table(Level, syn_received) of
        From when From =:= false; From =:= To -> ok;
        From -> mnesia:delete({From, Key})
    end,
    mnesia:write(To, #connection{key = Key, state = State, ends = Key}, write).

%% Look into each table until the connection is found.
look_up(_, [], _) ->
    [];
look_up(LookUp, [Table | Others], Key) ->
    case find(LookUp, Table, Key) of
        [] -> look_up(LookUp, Others, Key);
        Found -> Found
    end.

find(key, Table, Key) -> mnesia:read(Table, Key, read);
find(attribute, Table, Key) -> mnesia:match_object(Table, #connection{key = '_', state = '_', ends = Key}, read).

tables(none) -> [own];
tables(established) -> [own, shared];
tables(full) -> [shared].

table(none, _) -> own;
table(established, established) -> shared;
table(established, _) -> own;
table(full, _) -> shared.
